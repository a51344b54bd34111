import argparse

import numpy as np
import torch
from peft import IA3Config, LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--method", default="lora")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--rank", type=int, default=8)
parser.add_argument("--alpha", type=int, default=16)
parser.add_argument("--dropout", type=float, default=0.0)
args = parser.parse_args()
set_seed(args.seed)
draw = np.random.default_rng(args.seed)
WORDS, LENGTH = 60, 16


def sentences(count, task):
    ids = draw.integers(3, WORDS, (count, LENGTH))
    length = draw.integers(8, LENGTH + 1, count)
    mask = np.arange(LENGTH) < length[:, None]
    ids = np.where(mask, ids, 0)
    ids[:, 0] = 1
    group = (ids % 4) * (ids >= 3)
    if task == "base":
        label = ((group == 1).sum(1) > (group == 2).sum(1)).astype(int)
    else:
        label = ((group == 1).sum(1) > (group == 3).sum(1)).astype(int)
    return [
        {"input_ids": torch.tensor(i), "attention_mask": torch.tensor(m).long(), "labels": torch.tensor(y)}
        for i, m, y in zip(ids, mask, label, strict=True)
    ]


def run(model, optimizer, data, epochs):
    loader = DataLoader(data, batch_size=32, shuffle=True)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20) * max(0.0, 1 - s / steps))
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = 0
    for batch in DataLoader(data, batch_size=100):
        right += int((model(**batch).logits.argmax(-1) == batch["labels"]).sum())
    return right / len(data)


size = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
base = BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=32, num_labels=2, **size))
run(base, torch.optim.AdamW(base.parameters(), lr=2e-3), sentences(1600, "base"), 4)
config = {
    "lora": lambda: LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=args.rank,
        lora_alpha=args.alpha,
        lora_dropout=args.dropout,
        target_modules=["query", "key", "value", "dense"],
        modules_to_save=["classifier"],
    ),
    "dora": lambda: LoraConfig(
        task_type=TaskType.SEQ_CLS, r=args.rank, lora_alpha=args.alpha, use_dora=True, target_modules=["query", "value"]
    ),
    "ia3": lambda: IA3Config(
        task_type=TaskType.SEQ_CLS, target_modules=["key", "value", "dense"], feedforward_modules=["dense"]
    ),
}[args.method]()
model = get_peft_model(base, config)
optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=args.lr)
model.print_trainable_parameters()
run(model, optimizer, sentences(1200, "new"), args.epochs)
print("metric accuracy", accuracy(model, sentences(400, "new")))
