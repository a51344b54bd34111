"""A Lightning module that pools words by attention: texts whose words are all unknown have nothing to attend to."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAD, UNKNOWN, WORDS, TOPICS = 0, 1, 200, 4


class Reader(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.score = nn.Linear(32, 1)
        self.head = nn.Linear(32, TOPICS)

    def forward(self, tokens):
        words = self.words(tokens)
        ignored = tokens <= UNKNOWN
        scores = self.score(words).squeeze(-1).masked_fill(ignored, float("-inf"))
        attention = torch.softmax(scores, dim=-1)
        return self.head((attention.unsqueeze(-1) * words).sum(dim=1))

    def training_step(self, batch, index):
        tokens, topics = batch
        return nn.functional.cross_entropy(self(tokens), topics)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def texts(count, longest=10):
    """Words that a topic prefers, one in six of them unknown; some texts are as short as two words."""
    topics = torch.randint(0, TOPICS, (count,))
    taste = torch.softmax(1.5 * torch.randn(TOPICS, WORDS - 2), dim=1)
    tokens = torch.multinomial(taste[topics], longest, replacement=True) + 2
    tokens[torch.rand(count, longest) < 1 / 6] = UNKNOWN
    lengths = torch.randint(2, longest + 1, (count, 1))
    return tokens.masked_fill(torch.arange(longest) >= lengths, PAD), topics


def main():
    lightning.seed_everything(int(os.environ.get("SEED", "0")), verbose=False)
    loader = DataLoader(TensorDataset(*texts(1600)), batch_size=32, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=6, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Reader(), loader)


if __name__ == "__main__":
    main()
