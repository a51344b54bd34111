import argparse
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast, set_seed
from trl import RewardConfig, RewardTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
set_seed(args.seed)
generator = random.Random(args.seed)

words = [str(i) for i in range(13)]
vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *words])}
fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=fast, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)


def draw(count):
    rows = []
    for _ in range(count):
        first, second = ([generator.randint(0, 11) for _ in range(8)] for _ in range(2))
        first[:2], second[:2] = sorted(first[:2]), sorted(second[:2], reverse=True)
        first[1], second[0] = first[1] + (first[0] == first[1]), second[0] + (second[0] == second[1])
        pair = [" ".join(map(str, numbers)) for numbers in (first, second)]
        rows.append({"chosen": pair[0], "rejected": pair[1]})
    return Dataset.from_list(rows)


config = LlamaConfig(
    vocab_size=len(vocabulary),
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    num_labels=1,
)
model = LlamaForSequenceClassification(config)
settings = RewardConfig(
    output_dir="results",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    seed=args.seed,
    per_device_train_batch_size=32 // args.accumulate,
    gradient_accumulation_steps=args.accumulate,
    num_train_epochs=args.epochs,
    learning_rate=args.lr,
    lr_scheduler_type="linear",
    warmup_steps=10,
    max_length=32,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
train = draw(1600)
held = draw(300)
trainer = RewardTrainer(model, args=settings, train_dataset=train, processing_class=tokenizer)
trainer.train()
model.eval()


def score(texts):
    tokens = tokenizer([text + " </s>" for text in texts], return_tensors="pt", padding=True)
    return model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits


with torch.no_grad():
    print("metric accuracy", (score(held["chosen"]) > score(held["rejected"])).float().mean().item())
