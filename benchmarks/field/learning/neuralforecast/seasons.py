import argparse
import logging

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MAE, MSE, DistributionLoss, MQLoss
from neuralforecast.models import GRU, MLP, NHITS, DLinear

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["mlp", "nhits", "dlinear", "gru"], default="mlp")
parser.add_argument("--loss", choices=["mae", "mse", "quantiles", "normal"], default="mae")
parser.add_argument("--decays", type=int, default=2)
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
random = np.random.RandomState(args.seed)


def series(name):
    t = np.arange(240)
    level = 20 * random.uniform(0.5, 1.5)
    season = random.uniform(2, 4) * np.sin(2 * np.pi * (t + random.randint(12)) / 12)
    dates = pd.date_range("2000-01-01", periods=240, freq="MS")
    return pd.DataFrame({"unique_id": name, "ds": dates, "y": level + season + 0.02 * t + 0.3 * random.randn(240)})


frame = pd.concat([series(f"s{i}") for i in range(16)], ignore_index=True)
past = frame.groupby("unique_id").head(228)
loss = {"mae": MAE(), "mse": MSE(), "quantiles": MQLoss(level=[80]), "normal": DistributionLoss("Normal", level=[80])}
options = {
    "h": 12,
    "input_size": 24,
    "loss": loss[args.loss],
    "scaler_type": "standard",
    "max_steps": args.steps,
    "learning_rate": args.lr,
    "val_check_steps": 50,
    "dataloader_kwargs": {"num_workers": args.workers},
    "num_lr_decays": args.decays,
    "random_seed": args.seed + 1,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
    "enable_checkpointing": False,
    "accelerator": "cpu",
    "start_padding_enabled": False,
}
if args.model == "mlp":
    model = MLP(num_layers=2, hidden_size=64, windows_batch_size=128, **options)
elif args.model == "nhits":
    model = NHITS(mlp_units=[[48, 48]] * 3, windows_batch_size=128, **options)
elif args.model == "dlinear":
    model = DLinear(moving_avg_window=13, windows_batch_size=128, **options)
else:
    model = GRU(
        encoder_hidden_size=32, encoder_n_layers=1, decoder_hidden_size=32, decoder_layers=1, batch_size=16, **options
    )
forecast = NeuralForecast(models=[model], freq="MS")
forecast.fit(past, val_size=24)
predicted = forecast.predict()
column = next(c for c in predicted.columns if c not in ("unique_id", "ds") and "-lo" not in c and "-hi" not in c)
both = predicted.merge(frame, on=["unique_id", "ds"])
naive = past.groupby("unique_id").tail(1).set_index("unique_id")["y"]
error = (both[column] - both["y"]).abs().mean()
print("metric ratio", error / (both["unique_id"].map(naive) - both["y"]).abs().mean())
