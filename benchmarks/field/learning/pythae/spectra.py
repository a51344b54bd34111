import argparse

import torch
from pythae.models import VAE, VAEConfig
from pythae.models.base.base_utils import ModelOutput
from pythae.models.nn import BaseDecoder, BaseEncoder
from pythae.pipelines import TrainingPipeline
from pythae.trainers import BaseTrainerConfig
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scheduler", choices=["none", "plateau"], default="none")
args = parser.parse_args()
torch.manual_seed(args.seed)


def spectra(count, size=40):
    center, width = 8 + 24 * torch.rand(count, 1), 2 + 3 * torch.rand(count, 1)
    return torch.exp(-(((torch.arange(size) - center) / width) ** 2)) + 0.02 * torch.randn(count, size)


class Encoder(BaseEncoder):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, x):
        embedding, log_covariance = self.layers(x).chunk(2, dim=-1)
        return ModelOutput(embedding=embedding, log_covariance=log_covariance)


class Decoder(BaseDecoder):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 40))

    def forward(self, z):
        return ModelOutput(reconstruction=self.layers(z))


curves = spectra(1500)
mean, scale = curves[:1000].mean(0), curves[:1000].std(0)
curves = (curves - mean) / scale
config = VAEConfig(input_dim=(40,), latent_dim=4, reconstruction_loss="mse")
model = VAE(config, encoder=Encoder(), decoder=Decoder())
training = BaseTrainerConfig(
    output_dir="trained",
    num_epochs=25,
    learning_rate=2e-3,
    per_device_train_batch_size=50,
    per_device_eval_batch_size=250,
    optimizer_cls="AdamW",
    optimizer_params={"weight_decay": 1e-4},
    scheduler_cls="ReduceLROnPlateau" if args.scheduler == "plateau" else None,
    scheduler_params={"patience": 3, "factor": 0.5} if args.scheduler == "plateau" else None,
    seed=args.seed,
    no_cuda=True,
)
TrainingPipeline(model=model, training_config=training)(train_data=curves[:1000], eval_data=curves[1000:1250])
test = curves[1250:]
with torch.no_grad():
    made = model.reconstruct(test)
print("metric unexplained", ((made - test).square().mean() / test.square().mean()).item())
