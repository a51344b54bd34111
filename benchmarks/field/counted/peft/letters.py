import argparse

import numpy as np
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--method", default="lora")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=float, default=8)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--precision", default="float32")
args = parser.parse_args()
set_seed(args.seed)
draw = np.random.default_rng(args.seed)
LETTERS, LENGTH = 24, 16


def sequences(count, step):
    start = draw.integers(0, LETTERS, (count, 1))
    stride = step + draw.integers(0, 3, (count, 1))
    ids = (start + stride * np.arange(LENGTH)) % LETTERS
    labels = ids.copy()
    labels[:, :2] = -100
    return [{"input_ids": torch.tensor(i), "labels": torch.tensor(y)} for i, y in zip(ids, labels, strict=True)]


def train(model, data, epochs, lr, **settings):
    training = TrainingArguments(
        "out",
        per_device_train_batch_size=32,
        num_train_epochs=epochs,
        learning_rate=lr,
        warmup_steps=10,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        seed=args.seed,
        **settings,
    )
    Trainer(model, training, train_dataset=data, data_collator=default_data_collator).train()


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    ids = torch.stack([row["input_ids"] for row in data])
    answers = model(input_ids=ids).logits[:, 1:-1].argmax(-1)
    return float((answers == ids[:, 2:]).float().mean())


size = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
base = LlamaForCausalLM(
    LlamaConfig(vocab_size=LETTERS, num_key_value_heads=4, max_position_embeddings=64, pad_token_id=None, **size)
)
train(base, sequences(900, 1), 6, 3e-3)
base = base.to(getattr(torch, args.precision))
settings = {"task_type": TaskType.CAUSAL_LM, "lora_alpha": 16}
targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
if args.method == "lora":
    config = LoraConfig(r=8, target_modules=targets, **settings)
else:
    config = LoraConfig(r=16, use_rslora=True, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"], **settings)
model = get_peft_model(base, config)
train(model, sequences(800, 6), args.epochs, args.lr, gradient_checkpointing=args.checkpointing)
print("\nmetric accuracy", accuracy(model, sequences(300, 6)))
