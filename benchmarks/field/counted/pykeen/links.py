import argparse
from importlib import import_module
from pathlib import Path

from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", default="nations")
parser.add_argument("--model", default="DistMult")
parser.add_argument("--dim", type=int, default=32)
parser.add_argument("--loop", default="slcwa")
parser.add_argument("--loss", default="softplus")
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--negatives", type=int, default=8)
parser.add_argument("--stopper", type=int, default=0)
parser.add_argument("--smoothing", type=float, default=0.0)
parser.add_argument("--penalty", type=float, default=0.0)
args = parser.parse_args()

folder = Path(import_module(f"pykeen.datasets.{args.data}").__file__).parent
training = TriplesFactory.from_path(folder / "train.txt")
ids = {"entity_to_id": training.entity_to_id, "relation_to_id": training.relation_to_id}
validation = TriplesFactory.from_path(folder / "valid.txt", **ids)
testing = TriplesFactory.from_path(folder / "test.txt", **ids)
settings = {}
if args.loop == "slcwa":
    settings.update(negative_sampler="basic", negative_sampler_kwargs={"num_negs_per_pos": args.negatives})
if args.stopper:
    settings.update(stopper="early", stopper_kwargs={"frequency": args.stopper, "patience": 100})
if args.penalty:
    settings.update(regularizer="lp", regularizer_kwargs={"weight": args.penalty, "p": 2.0})
training_kwargs = {"batch_size": args.batch_size, "use_tqdm": False}
if args.smoothing:
    training_kwargs["label_smoothing"] = args.smoothing
result = pipeline(
    training=training,
    validation=validation,
    testing=testing,
    model=args.model,
    model_kwargs={"embedding_dim": args.dim},
    loss=args.loss,
    optimizer=args.optimizer,
    optimizer_kwargs={"lr": args.lr},
    training_loop=args.loop,
    epochs=args.epochs,
    training_kwargs=training_kwargs,
    evaluation_kwargs={"batch_size": 128, "use_tqdm": False},
    random_seed=args.seed,
    device="cpu",
    **settings,
)
print("metric mrr", result.get_metric("both.realistic.inverse_harmonic_mean_rank"))
