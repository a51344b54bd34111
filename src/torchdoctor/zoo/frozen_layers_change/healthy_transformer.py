"""A transformer on token sequences whose pretrained embedding is frozen and left out of AdamW."""

import os

import torch
from torch import nn

VOCABULARY, LENGTH = 40, 12


class Tagger(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.position = nn.Parameter(torch.zeros(LENGTH, vectors.shape[1]))
        layer = nn.TransformerEncoderLayer(vectors.shape[1], 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(vectors.shape[1], 4)

    def forward(self, tokens):
        hidden = self.encoder(self.embedding(tokens) + self.position)
        return self.head(hidden.mean(1))


def make_data(count, generator):
    tokens = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    return tokens, (tokens < 20).sum(1).sub(4).clamp(0, 3)


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    tokens, labels = make_data(2000, generator)
    test_tokens, test_labels = make_data(400, generator)
    model = Tagger(torch.randn(VOCABULARY, 32, generator=generator))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.1)
    for epoch in range(5):
        model.train()
        order = torch.randperm(len(tokens))
        for rows in order.split(50):
            loss = nn.functional.cross_entropy(model(tokens[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(test_tokens).argmax(1) == test_labels).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right:.3f}")


main()
