import argparse
import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", choices=["copy", "sort"], default="copy")
parser.add_argument("--form", choices=["prompt", "text"], default="prompt")
parser.add_argument("--length", type=int, default=32)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--dtype", default="float32")
args = parser.parse_args()
set_seed(args.seed)
generator = random.Random(args.seed)

words = [str(i) for i in range(16)]
vocabulary = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "=", *words])}
fast = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=fast, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)


def draw():
    numbers = generator.sample(range(16), generator.randint(4, 6))
    answer = numbers if args.task == "copy" else sorted(numbers)
    return " ".join(map(str, numbers)) + " =", " " + " ".join(map(str, answer))


def rows(pairs):
    if args.form == "prompt":
        return Dataset.from_list([{"prompt": prompt, "completion": answer} for prompt, answer in pairs])
    return Dataset.from_list([{"text": prompt + answer} for prompt, answer in pairs])


config = LlamaConfig(
    vocab_size=len(vocabulary),
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
model = LlamaForCausalLM(config).to(getattr(torch, args.dtype))
settings = SFTConfig(
    output_dir="results",
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    seed=args.seed,
    per_device_train_batch_size=args.batch,
    num_train_epochs=args.epochs,
    learning_rate=args.lr,
    lr_scheduler_type="cosine",
    warmup_steps=10,
    max_length=args.length,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
trainer = SFTTrainer(
    model, args=settings, train_dataset=rows([draw() for _ in range(2000)]), processing_class=tokenizer
)
trainer.train()
model.eval()
right = total = 0
with torch.no_grad():
    for prompt, answer in [draw() for _ in range(200)]:
        tokens = torch.tensor([tokenizer(prompt + answer + " </s>")["input_ids"]])
        start = len(prompt.split())
        guess = model(tokens).logits[0, start - 1 : -1].argmax(1)
        right += int((guess == tokens[0, start:]).sum())
        total += tokens.shape[1] - start
print("metric accuracy", right / total)
