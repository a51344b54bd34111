import argparse

import numpy as np
from datasets import Dataset
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sklearn.metrics import roc_auc_score
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()
set_seed(args.seed)
draw = np.random.default_rng(args.seed)

KINDS, WORDS = 4, 4
names = ["[PAD]", "[UNK]", "[SEP]", *(f"kind{k}word{w}" for k in range(KINDS) for w in range(WORDS))]
vocabulary = {name: i for i, name in enumerate(names)}
core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
core.post_processor = processors.TemplateProcessing(
    single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", 2)]
)
config = BertConfig(
    vocab_size=len(names),
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=32,
    num_labels=1,
)
BertForSequenceClassification(config).save_pretrained("small")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", sep_token="[SEP]", model_max_length=32
)
tokenizer.save_pretrained("small")
model = CrossEncoder("small", num_labels=1, device="cpu")


def make(count):
    columns = {"query": [], "answer": [], "label": []}
    for _ in range(count):
        wanted, label = draw.integers(KINDS), draw.integers(2)
        kind = wanted if label else (wanted + draw.integers(1, KINDS)) % KINDS
        columns["query"].append(" ".join(f"kind{wanted}word{draw.integers(WORDS)}" for _ in range(3)))
        columns["answer"].append(" ".join(f"kind{kind}word{draw.integers(WORDS)}" for _ in range(5)))
        columns["label"].append(int(label))
    return columns


train, test = make(1600), make(400)
training = CrossEncoderTrainingArguments(
    "out",
    num_train_epochs=args.epochs,
    per_device_train_batch_size=32,
    learning_rate=args.lr,
    warmup_steps=0.1,
    eval_strategy="no",
    save_strategy="no",
    logging_steps=20,
    report_to="none",
    seed=args.seed,
)
trainer = CrossEncoderTrainer(
    model, training, train_dataset=Dataset.from_dict(train), loss=BinaryCrossEntropyLoss(model)
)
trainer.train()
scores = model.predict(list(zip(test["query"], test["answer"], strict=True)))
print("\nmetric auc", roc_auc_score(test["label"], scores))
