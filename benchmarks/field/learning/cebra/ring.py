import argparse

import numpy as np
import torch
from cebra import CEBRA
from sklearn.neighbors import KNeighborsRegressor

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--guide", choices=["time", "angle"], default="time")
parser.add_argument("--distance", choices=["cosine", "euclidean"], default="cosine")
parser.add_argument("--temperature", default="1.0")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--order", choices=["given", "mixed"], default="given")
args = parser.parse_args()
torch.manual_seed(args.seed)
random = np.random.RandomState(args.seed)

angle = np.cumsum(0.15 + 0.1 * random.randn(3000))
around = np.linspace(0, 2 * np.pi, 24, endpoint=False)
spikes = random.poisson(np.exp(1.5 * np.cos(angle[:, None] - around))).astype("float32")
truth = np.stack([np.cos(angle), np.sin(angle)], 1).astype("float32")
fitted = spikes[:2400][random.permutation(2400)] if args.order == "mixed" else spikes[:2400]
automatic = args.temperature == "auto"
model = CEBRA(
    model_architecture="offset1-model-mse" if args.distance == "euclidean" else "offset1-model",
    batch_size=args.batch,
    learning_rate=args.lr,
    temperature=1.0 if automatic else float(args.temperature),
    temperature_mode="auto" if automatic else "constant",
    max_iterations=args.steps,
    output_dimension=3,
    num_hidden_units=24,
    distance=args.distance,
    conditional="time" if args.guide == "time" else "delta",
    delta=None if args.guide == "time" else 0.1,
    time_offsets=2,
    device="cpu",
)
if args.guide == "time":
    model.fit(fitted)
else:
    model.fit(fitted, truth[:2400])
losses = model.state_dict_["loss"]
print(losses[0].item(), losses[-1].item())
found = model.transform(spikes)
decoder = KNeighborsRegressor(15).fit(found[:2400], truth[:2400])
print("metric r2", decoder.score(found[2400:], truth[2400:]))
