import argparse

import torch
from pythae.models import (
    AE,
    IWAE,
    VAE,
    WAE_MMD,
    AEConfig,
    BetaVAE,
    BetaVAEConfig,
    IWAEConfig,
    VAEConfig,
    WAE_MMD_Config,
)
from pythae.pipelines import TrainingPipeline
from pythae.trainers import BaseTrainerConfig
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["AE", "VAE", "BetaVAE", "IWAE", "WAE_MMD"], default="VAE")
parser.add_argument("--beta", type=float, default=0.5)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--maximum", type=float, default=1.0)
parser.add_argument("--loss", choices=["mse", "bce"], default="bce")
parser.add_argument("--epochs", type=int, default=30)
args = parser.parse_args()
torch.manual_seed(args.seed)

pixels = torch.tensor(load_digits().images / 16 * args.maximum, dtype=torch.float32)[:, None]
train, rest = train_test_split(pixels, test_size=0.4, random_state=args.seed)
valid, test = train_test_split(rest, test_size=0.5, random_state=args.seed)

options = {"input_dim": (1, 8, 8), "latent_dim": 10}
if args.model in ("VAE", "BetaVAE", "IWAE"):
    options["reconstruction_loss"] = args.loss
if args.model == "BetaVAE":
    options["beta"] = args.beta
if args.model == "IWAE":
    options["number_samples"] = 5
config = {"AE": AEConfig, "VAE": VAEConfig, "BetaVAE": BetaVAEConfig, "IWAE": IWAEConfig, "WAE_MMD": WAE_MMD_Config}
kinds = {"AE": AE, "VAE": VAE, "BetaVAE": BetaVAE, "IWAE": IWAE, "WAE_MMD": WAE_MMD}
model = kinds[args.model](config[args.model](**options))
training = BaseTrainerConfig(
    output_dir="trained",
    num_epochs=args.epochs,
    learning_rate=args.lr,
    per_device_train_batch_size=64,
    per_device_eval_batch_size=256,
    optimizer_cls="Adam",
    seed=args.seed,
    no_cuda=True,
)
pipeline = TrainingPipeline(model=model, training_config=training)
pipeline(train_data=train, eval_data=valid)
with torch.no_grad():
    made = model.reconstruct(test)
print("metric unexplained", ((made - test).square().mean() / (test - train.mean(0)).square().mean()).item())
