"""A small transformer that accumulates gradients over eight micro-batches."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
VOCABULARY, LENGTH, MICRO_BATCHES = 64, 32, 8


class Language(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.tokens(x) + self.places, mask=self.mask))


model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = torch.arange(20_000).mul(7).remainder(VOCABULARY)
for _step in range(120):
    optimizer.zero_grad()
    for _ in range(MICRO_BATCHES):
        starts = torch.randint(0, len(text) - LENGTH - 1, (4,))
        rows = starts[:, None] + torch.arange(LENGTH + 1)
        batch = text[rows]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()) / MICRO_BATCHES
        loss.backward()
    optimizer.step()
print(loss.item() * MICRO_BATCHES)
