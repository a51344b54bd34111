"""A tiny BERT from its configuration, trained with the Hugging Face Trainer."""

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)


class Phrases(Dataset):
    """Label 1 when words below 20 outnumber the others."""

    def __init__(self, n):
        self.ids = torch.randint(3, 40, (n, 10))
        self.lengths = torch.randint(5, 11, (n,))
        self.mask = (torch.arange(10)[None] < self.lengths[:, None]).long()
        self.ids = self.ids * self.mask
        low = ((self.ids < 20) & (self.mask == 1)).sum(1)
        self.labels = (2 * low > self.lengths).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask[i], "labels": self.labels[i]}


def metrics(out):
    return {"accuracy": float((out.predictions.argmax(1) == out.label_ids).mean())}


config = BertConfig(
    vocab_size=40,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=16,
    num_labels=2,
)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=3,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        learning_rate=2e-3,
        warmup_steps=20,
        eval_strategy="epoch",
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=SEED,
        use_cpu=True,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=args,
        train_dataset=Phrases(1600),
        eval_dataset=Phrases(400),
        compute_metrics=metrics,
    )
    trainer.train()
    print(trainer.evaluate())
