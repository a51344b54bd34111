import argparse

import lightning as L
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
L.seed_everything(args.seed)


def real(count):
    angle = 2 * torch.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.discriminator = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def sample(self, count):
        return self.generator(torch.randn(count, 4))

    def training_step(self, batch, index):
        (x,) = batch
        optimizer_g, optimizer_d = self.optimizers()
        ones, zeros = torch.ones(len(x), 1), torch.zeros(len(x), 1)

        self.toggle_optimizer(optimizer_d)
        loss_d = binary_cross_entropy_with_logits(self.discriminator(x), ones)
        loss_d = loss_d + binary_cross_entropy_with_logits(self.discriminator(self.sample(len(x)).detach()), zeros)
        optimizer_d.zero_grad()
        self.manual_backward(loss_d)
        optimizer_d.step()
        self.untoggle_optimizer(optimizer_d)

        self.toggle_optimizer(optimizer_g)
        loss_g = binary_cross_entropy_with_logits(self.discriminator(self.sample(len(x))), ones)
        optimizer_g.zero_grad()
        self.manual_backward(loss_g)
        optimizer_g.step()
        self.untoggle_optimizer(optimizer_g)
        self.log_dict({"loss_d": loss_d, "loss_g": loss_g})

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.0, 0.9)),
            torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.0, 0.9)),
        )


model = GAN()
trainer = L.Trainer(
    max_epochs=60, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False
)
trainer.fit(model, DataLoader(TensorDataset(real(4096)), batch_size=128, shuffle=True))
with torch.no_grad():
    made, held = model.sample(1000), real(1000)
    distance = 2 * torch.cdist(made, held).mean() - torch.cdist(made, made).mean() - torch.cdist(held, held).mean()
print("metric distance", distance.item())
