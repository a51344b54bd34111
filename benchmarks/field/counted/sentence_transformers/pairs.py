import argparse

import numpy as np
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.evaluation import InformationRetrievalEvaluator, TripletEvaluator
from sentence_transformers.losses import MultipleNegativesRankingLoss, TripletLoss
from sentence_transformers.models import Pooling, StaticEmbedding, Transformer
from sentence_transformers.training_args import BatchSamplers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="static")
parser.add_argument("--loss", default="ranking")
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--sampler", default="no_duplicates")
parser.add_argument("--subjects", type=int, default=150)
args = parser.parse_args()
set_seed(args.seed)
draw = np.random.default_rng(args.seed)

PLAIN = [f"word{i}" for i in range(60)]
LEFT = [f"ask{i}" for i in range(40)]
RIGHT = [f"tell{i}" for i in range(40)]
subjects = [draw.choice(40, 3, replace=False) for _ in range(args.subjects)]


def say(subject, words, plain=6):
    said = [words[i] for i in subject] + list(draw.choice(PLAIN, plain))
    draw.shuffle(said)
    return " ".join(said)


def make_pairs(count):
    chosen = draw.integers(0, len(subjects), count)
    return [(say(subjects[i], LEFT), say(subjects[i], RIGHT), say(subjects[i - 1], RIGHT)) for i in chosen]


vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *PLAIN, *LEFT, *RIGHT])}
core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
core.pre_tokenizer = pre_tokenizers.Whitespace()
if args.model == "static":
    model = SentenceTransformer(modules=[StaticEmbedding(core, embedding_dim=48)], device="cpu")
else:
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained("small")
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]").save_pretrained("small")
    transformer = Transformer("small")
    model = SentenceTransformer(modules=[transformer, Pooling(48, pooling_mode="mean")], device="cpu")

rows = make_pairs(2000)
columns = {"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]}
if args.loss == "triplet":
    columns["negative"] = [row[2] for row in rows]
    loss = TripletLoss(model, triplet_margin=1.0)
    held_out = make_pairs(300)
    evaluator = TripletEvaluator(*(list(column) for column in zip(*held_out, strict=True)), name="held_out")
    score = "held_out_cosine_accuracy"
else:
    loss = MultipleNegativesRankingLoss(model)
    queries = {str(i): say(subject, LEFT) for i, subject in enumerate(subjects)}
    answers = {str(i): say(subject, RIGHT) for i, subject in enumerate(subjects)}
    evaluator = InformationRetrievalEvaluator(queries, answers, {i: {i} for i in queries}, name="held_out")
    score = "held_out_cosine_mrr@10"
training = SentenceTransformerTrainingArguments(
    "out",
    num_train_epochs=args.epochs,
    per_device_train_batch_size=args.batch_size,
    gradient_accumulation_steps=args.accumulate,
    learning_rate=args.lr,
    warmup_steps=0.1,
    batch_sampler=BatchSamplers(args.sampler),
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=20,
    report_to="none",
    seed=args.seed,
)
trainer = SentenceTransformerTrainer(
    model, training, train_dataset=Dataset.from_dict(columns), loss=loss, evaluator=evaluator
)
trainer.train()
print("\nmetric", score, evaluator(model)[score])
