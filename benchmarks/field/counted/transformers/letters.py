import argparse

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="gpt2")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=float, default=6)
parser.add_argument("--pad", default="<pad>")
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
set_seed(args.seed)

WORDS = ["<pad>", "<end>", ">", *"abcdefgh"]
core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=args.pad, eos_token="<end>")


def make(count, draw):
    for _ in range(count):
        letters = list(draw.choice(list("abcdefgh"), draw.integers(2, 6), replace=False))
        yield " ".join(letters), " ".join(sorted(letters))


draw = np.random.default_rng(args.seed)
train_pairs = list(make(1500, draw))
test_pairs = [pair for pair in make(200, draw) if pair not in train_pairs]
train_data, test_data = (
    [tokenizer(f"{question} > {answer} <end>") for question, answer in pairs] for pairs in (train_pairs, test_pairs)
)
sizes = {
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "resid_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
}[args.model]
config = AutoConfig.for_model(
    args.model, vocab_size=len(WORDS), bos_token_id=2, eos_token_id=1, pad_token_id=tokenizer.pad_token_id, **sizes
)
model = AutoModelForCausalLM.from_config(config)
training = TrainingArguments(
    "out",
    per_device_train_batch_size=args.batch_size,
    num_train_epochs=args.epochs,
    learning_rate=args.lr,
    lr_scheduler_type="cosine",
    warmup_steps=30,
    max_grad_norm=args.clip,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=50,
    report_to="none",
    seed=args.seed,
)
trainer = Trainer(
    model,
    training,
    train_dataset=train_data,
    eval_dataset=test_data,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()

model.eval()
right = 0
for question, answer in test_pairs[:60]:
    prompt = torch.tensor([tokenizer(f"{question} >")["input_ids"]])
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, do_sample=False)
    wanted = tokenizer(f"{answer} <end>")["input_ids"]
    right += output[0, prompt.shape[1] :].tolist() == wanted
print("\nmetric exact", right / 60)
