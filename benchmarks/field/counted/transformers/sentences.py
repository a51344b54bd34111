import argparse

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="bert")
parser.add_argument("--task", default="sentiment")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=float, default=6)
parser.add_argument("--warmup", type=int, default=20)
parser.add_argument("--decay", type=float, default=0.01)
args = parser.parse_args()
set_seed(args.seed)

GOOD = ["good", "great", "lovely", "superb", "fine", "charming"]
BAD = ["bad", "awful", "dull", "poor", "weak", "boring"]
PLAIN = ["the", "film", "plot", "was", "and", "with", "actor", "scene", "music", "very", "this", "a", "in", "it"]
WORDS = ["[PAD]", "[UNK]", *GOOD, *BAD, *PLAIN]
core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")


def make(count, draw):
    rows = []
    for _ in range(count):
        words = list(draw.choice(PLAIN, draw.integers(4, 20)))
        opinions = list(draw.choice(GOOD + BAD, draw.choice([1, 3])))
        balance = sum(1 if word in GOOD else -1 for word in opinions)
        words += opinions
        draw.shuffle(words)
        label = float(balance) if args.task == "rating" else int(balance > 0)
        rows.append({**tokenizer(" ".join(words)), "label": label})
    return rows


def measure(prediction):
    if args.task == "rating":
        return {"mse": float(np.mean((prediction.predictions[:, 0] - prediction.label_ids) ** 2))}
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


draw = np.random.default_rng(args.seed)
train_data, test_data = make(1200, draw), make(300, draw)
small = {
    "bert": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96},
    "roberta": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96},
    "distilbert": {"dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96},
}[args.model]
config = AutoConfig.for_model(
    args.model,
    vocab_size=len(WORDS),
    pad_token_id=tokenizer.pad_token_id,
    num_labels=1 if args.task == "rating" else 2,
    max_position_embeddings=64,
    **small,
)
model = AutoModelForSequenceClassification.from_config(config)
training = TrainingArguments(
    "out",
    per_device_train_batch_size=32,
    per_device_eval_batch_size=100,
    num_train_epochs=args.epochs,
    learning_rate=args.lr,
    warmup_steps=args.warmup,
    weight_decay=args.decay,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=20,
    report_to="none",
    seed=args.seed,
)
trainer = Trainer(
    model,
    training,
    train_dataset=train_data,
    eval_dataset=test_data,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=measure,
)
trainer.train()
result = trainer.evaluate()
name = "mse" if args.task == "rating" else "accuracy"
print(f"\nmetric {name}", result[f"eval_{name}"])
