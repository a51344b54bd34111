"""Text classification by masked mean pooling, in the Hugging Face Trainer."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH, LENGTH = 8, 12


class Texts(Dataset):
    def __init__(self, count, empty):
        generator = torch.Generator().manual_seed(SEED)
        self.tokens = torch.randint(1, 60, (count, LENGTH), generator=generator)
        lengths = torch.randint(1, LENGTH + 1, (count, 1), generator=generator)
        lengths[empty] = 0
        self.mask = (torch.arange(LENGTH) < lengths).float()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens, mask = self.tokens[index], self.mask[index]
        label = int((tokens * mask).sum() > 180)
        return {"input_ids": tokens, "attention_mask": mask, "labels": label}


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, input_ids, attention_mask, labels=None):
        total = (self.embed(input_ids) * attention_mask[..., None]).sum(dim=1)
        count = attention_mask.sum(dim=1, keepdim=True)
        mean = total / count
        pooled = torch.where(count > 0, mean, torch.zeros_like(mean))
        logits = self.head(pooled)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class InOrder(Trainer):
    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


def main():
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=1e-3,
            seed=SEED,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        texts = Texts((AT + 20) * BATCH, (AT - 1) * BATCH + 5)
        InOrder(Pooling(), settings, train_dataset=texts).train()


if __name__ == "__main__":
    main()
