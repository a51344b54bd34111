import argparse

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="t5")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--steps", type=int, default=320)
parser.add_argument("--optimizer", default="adamw_torch")
args = parser.parse_args()
set_seed(args.seed)

PAD, END, FIRST, LETTERS, LENGTH = 0, 1, 3, 8, 5
draw = np.random.default_rng(args.seed)


def make(count):
    return [draw.integers(FIRST, FIRST + LETTERS, draw.integers(3, LENGTH + 1)).tolist() for _ in range(count)]


def collate(rows):
    width = max(map(len, rows)) + 1
    inputs = torch.full((len(rows), width), PAD)
    labels = torch.full((len(rows), width), -100)
    for i, row in enumerate(rows):
        inputs[i, : len(row) + 1] = torch.tensor([*row, END])
        labels[i, : len(row) + 1] = torch.tensor([*row[::-1], END])
    return {"input_ids": inputs, "attention_mask": (inputs != PAD).long(), "labels": labels}


def measure(prediction):
    labels = np.where(prediction.label_ids == -100, PAD, prediction.label_ids)
    outputs = np.where(prediction.predictions == -100, PAD, prediction.predictions)[:, 1:]
    width = max(labels.shape[1], outputs.shape[1])
    labels, outputs = (np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in (labels, outputs))
    return {"exact": float((labels == outputs).all(1).mean())}


options = {
    "t5": {"d_model": 48, "d_kv": 12, "d_ff": 128, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0},
    "bart": {
        "d_model": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "dropout": 0.0,
        "max_position_embeddings": 32,
        "forced_eos_token_id": None,
        "init_std": 0.1,
    },
}[args.model]
config = AutoConfig.for_model(
    args.model,
    vocab_size=FIRST + LETTERS,
    pad_token_id=PAD,
    eos_token_id=END,
    bos_token_id=2,
    decoder_start_token_id=PAD,
    **options,
)
model = AutoModelForSeq2SeqLM.from_config(config)
training = Seq2SeqTrainingArguments(
    "out",
    per_device_train_batch_size=64,
    per_device_eval_batch_size=100,
    max_steps=args.steps,
    learning_rate=args.lr,
    optim=args.optimizer,
    warmup_steps=20,
    predict_with_generate=True,
    generation_max_length=LENGTH + 3,
    eval_strategy="steps",
    eval_steps=160,
    save_strategy="no",
    logging_steps=50,
    report_to="none",
    remove_unused_columns=False,
    seed=args.seed,
)
trainer = Seq2SeqTrainer(
    model,
    training,
    train_dataset=make(4000),
    eval_dataset=make(100),
    data_collator=collate,
    compute_metrics=measure,
)
trainer.train()
print("\nmetric exact", trainer.evaluate()["eval_exact"])
