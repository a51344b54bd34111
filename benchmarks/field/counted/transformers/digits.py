import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from transformers import AutoConfig, AutoModelForImageClassification, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="vit")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=float, default=8)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
set_seed(args.seed)

X, y = load_digits(return_X_y=True)
images = torch.tensor(X / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)
labels = torch.tensor(y)
train, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=args.seed, stratify=y)


def rows(indices):
    return [{"pixel_values": images[i], "labels": labels[i]} for i in indices]


options = {
    "vit": {
        "image_size": 8,
        "patch_size": 2,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 96,
    },
    "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"},
}[args.model]
config = AutoConfig.for_model(args.model, num_channels=1, num_labels=10, **options)
model = AutoModelForImageClassification.from_config(config)
training = TrainingArguments(
    "out",
    per_device_train_batch_size=args.batch_size,
    per_device_eval_batch_size=128,
    gradient_accumulation_steps=args.accumulate,
    num_train_epochs=args.epochs,
    learning_rate=args.lr,
    lr_scheduler_type="cosine",
    warmup_steps=0.1,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=25,
    report_to="none",
    seed=args.seed,
)
trainer = Trainer(
    model,
    training,
    train_dataset=rows(train),
    eval_dataset=rows(test),
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
)
trainer.train()
print("\nmetric accuracy", trainer.evaluate()["eval_accuracy"])
