import argparse
import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from pytorch_forecasting import (
    DeepAR,
    GroupNormalizer,
    NBeats,
    RecurrentNetwork,
    TemporalFusionTransformer,
    TimeSeriesDataSet,
)
from pytorch_forecasting.metrics import MAE, NormalDistributionLoss, QuantileLoss

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="tft")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--clip", type=float, default=0.5)
args = parser.parse_args()
pl.seed_everything(args.seed)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
draw = np.random.default_rng(args.seed)

SERIES, LENGTH, PAST, FUTURE = 20, 120, 21, 7
rows = []
for series in range(SERIES):
    time = np.arange(LENGTH)
    level, size, phase = draw.uniform(20, 60), draw.uniform(0.2, 0.5), draw.integers(0, 7)
    promotion = draw.random(LENGTH) < 0.15
    week = 1 + size * np.sin(2 * np.pi * (time + phase) / 7)
    value = level * (week + 0.3 * promotion + 0.05 * draw.normal(size=LENGTH)) * (draw.random(LENGTH) > 0.01)
    columns = {"time": time, "series": str(series), "value": value, "promotion": promotion.astype(float)}
    rows.append(pd.DataFrame(columns))
table = pd.concat(rows, ignore_index=True)
cut = LENGTH - 3 * FUTURE

plain = args.model == "nbeats"
known = {} if plain else {"time_varying_known_reals": ["promotion"], "static_categoricals": ["series"]}
training = TimeSeriesDataSet(
    table[table.time < cut],
    time_idx="time",
    target="value",
    group_ids=["series"],
    max_encoder_length=PAST,
    min_encoder_length=PAST,
    max_prediction_length=FUTURE,
    min_prediction_length=FUTURE,
    time_varying_unknown_reals=["value"],
    target_normalizer=GroupNormalizer(groups=["series"]),
    **known,
)
testing = TimeSeriesDataSet.from_dataset(training, table, min_prediction_idx=cut)
train_loader = training.to_dataloader(train=True, batch_size=args.batch_size, num_workers=0)
test_loader = testing.to_dataloader(train=False, batch_size=150, num_workers=0)
common = {"learning_rate": args.lr, "log_interval": -1}
if args.model == "tft":
    sizes = {"hidden_size": args.hidden, "hidden_continuous_size": 8, "attention_head_size": 2, "dropout": 0.1}
    model = TemporalFusionTransformer.from_dataset(training, loss=QuantileLoss(), **sizes, **common)
elif args.model == "nbeats":
    model = NBeats.from_dataset(training, widths=[32, 128], num_blocks=[2, 2], backcast_loss_ratio=0.1, **common)
elif args.model == "deepar":
    model = DeepAR.from_dataset(
        training, loss=NormalDistributionLoss(), hidden_size=args.hidden, rnn_layers=1, **common
    )
else:
    kind = {"cell_type": args.model.upper(), "rnn_layers": 1, "hidden_size": args.hidden}
    model = RecurrentNetwork.from_dataset(training, loss=MAE(), **kind, **common)
trainer = pl.Trainer(
    accelerator="cpu",
    max_epochs=args.epochs,
    gradient_clip_val=args.clip,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, train_loader, test_loader)

model.eval()
errors, scale = [], []
with torch.no_grad():
    for x, (target, _) in test_loader:
        answer = model.to_prediction(model(x))
        errors.append((answer - target).abs())
        scale.append((x["encoder_target"].mean(1, keepdim=True) - target).abs())
print("metric relative", float(torch.cat(errors).mean() / torch.cat(scale).mean()))
