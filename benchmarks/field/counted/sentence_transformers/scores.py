import argparse

import numpy as np
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.losses import CoSENTLoss, CosineSimilarityLoss
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", default="cosine")
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--low", type=int, default=0)
args = parser.parse_args()
set_seed(args.seed)
draw = np.random.default_rng(args.seed)

THEMES, WORDS = 14, 6
vocabulary = {"[UNK]": 0, **{f"theme{t}word{w}": 1 + t * WORDS + w for t in range(THEMES) for w in range(WORDS)}}
core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
model = SentenceTransformer(modules=[StaticEmbedding(core, embedding_dim=32)], device="cpu")


def make(count, low):
    columns = {"sentence1": [], "sentence2": [], "score": []}
    for _ in range(count):
        shared = int(draw.integers(low, 6))
        first = list(draw.choice(THEMES, 5, replace=False))
        others = [t for t in range(THEMES) if t not in first]
        second = first[:shared] + list(draw.choice(others, 5 - shared, replace=False))
        columns["sentence1"].append(" ".join(f"theme{t}word{draw.integers(WORDS)}" for t in first))
        columns["sentence2"].append(" ".join(f"theme{t}word{draw.integers(WORDS)}" for t in draw.permutation(second)))
        columns["score"].append(float(shared))
    return columns


train, test = make(2000, args.low), make(400, 0)
train["score"] = [score / 5 for score in train["score"]]
evaluator = EmbeddingSimilarityEvaluator(test["sentence1"], test["sentence2"], test["score"], name="test")
training = SentenceTransformerTrainingArguments(
    "out",
    num_train_epochs=args.epochs,
    per_device_train_batch_size=32,
    learning_rate=args.lr,
    warmup_steps=0.1,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=20,
    report_to="none",
    seed=args.seed,
)
trainer = SentenceTransformerTrainer(
    model,
    training,
    train_dataset=Dataset.from_dict(train),
    loss=CosineSimilarityLoss(model) if args.loss == "cosine" else CoSENTLoss(model),
    evaluator=evaluator,
)
trainer.train()
print("\nmetric spearman", evaluator(model)["test_spearman_cosine"])
