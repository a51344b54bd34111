import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--clip", type=float, default=1.0)
args = parser.parse_args()
L.seed_everything(args.seed)
WORDS, LENGTH = 12, 16


def sequences(count):
    start, stride = torch.randint(0, WORDS, (2, count, 1))
    return TensorDataset((start + stride * torch.arange(LENGTH)) % WORDS)


class Language(L.LightningModule):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        hidden = self.words(x) + self.places(torch.arange(x.size(1)))
        return self.head(self.encoder(hidden, mask=mask, is_causal=True))

    def training_step(self, batch, index):
        (x,) = batch
        output = self(x[:, :-1])
        loss = cross_entropy(output.flatten(0, 1), x[:, 1:].flatten())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        (x,) = batch
        output = self(x[:, :-1])
        self.log("valid_loss", cross_entropy(output.flatten(0, 1), x[:, 1:].flatten()))
        self.log("valid_accuracy", (output[:, 2:].argmax(-1) == x[:, 3:]).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


trainer = L.Trainer(
    max_epochs=12,
    accelerator="cpu",
    gradient_clip_val=args.clip,
    logger=CSVLogger("."),
    callbacks=[LearningRateMonitor("step")],
    enable_progress_bar=False,
    enable_checkpointing=False,
)
model = Language()
trainer.fit(
    model,
    DataLoader(sequences(2048), batch_size=64, shuffle=True),
    DataLoader(sequences(512), batch_size=128),
)
print("metric accuracy", trainer.callback_metrics["valid_accuracy"].item())
