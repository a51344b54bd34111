"""transformers: the Trainer, on small models with random weights."""

from field.edits import in_turn, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("transformers==5.23.0", "accelerate==1.15.0"))

PROGRAMS = [
    Program("sentences-bert", "sentences.py", "language", "trainer", Metric(HIGHER, 0.93)),
    Program(
        "sentences-distilbert",
        "sentences.py",
        "language",
        "trainer",
        Metric(HIGHER, 0.93),
        ("--model", "distilbert", "--decay", "0"),
    ),
    Program("rating-bert", "sentences.py", "language", "trainer", Metric(LOWER, 0.6), ("--task", "rating")),
    Program("letters-gpt2", "letters.py", "language", "trainer", Metric(HIGHER, 0.85)),
    Program("letters-llama", "letters.py", "language", "trainer", Metric(HIGHER, 0.85), ("--model", "llama")),
    Program("digits-vit", "digits.py", "vision", "trainer", Metric(HIGHER, 0.85)),
    Program("digits-resnet", "digits.py", "vision", "trainer", Metric(HIGHER, 0.93), ("--model", "resnet")),
    Program("reverse-t5", "reverse.py", "language", "trainer", Metric(HIGHER, 0.75)),
]

COLLATOR = "DataCollatorForLanguageModeling(tokenizer, mlm=False)"

FAULTS = [
    Fault(
        "prepared-labels",
        "letters-gpt2",
        accepted=("labels-shifted-twice",),
        category="data",
        source="https://github.com/huggingface/transformers/issues/3523",
        mistake="The collator shifts the labels, and the model shifts them again, so it learns to skip a token.",
        edits={
            SCRIPT: in_turn(
                replace(f"data_collator={COLLATOR}", "data_collator=collate"),
                replace(
                    "trainer = Trainer(\n",
                    f"gather = {COLLATOR}\n\n\n"
                    "def collate(rows):\n"
                    "    batch = gather(rows)\n"
                    "    last = torch.full((len(rows), 1), -100)\n"
                    '    batch["labels"] = torch.cat([batch["labels"][:, 1:], last], 1)\n'
                    "    return batch\n\n\n"
                    "trainer = Trainer(\n",
                ),
            )
        },
    ),
    Fault(
        "pad-token",
        "letters-llama",
        accepted=("unsupervised-samples",),
        category="data",
        source="https://github.com/huggingface/transformers/issues/23530",
        mistake="The end token doubles as the padding token, so the collator masks every end and none is learned.",
        arguments=("--model", "llama", "--pad", "<end>"),
    ),
    Fault(
        "long-warmup",
        "sentences-bert",
        accepted=("scheduler-misuse", "learning-rate-too-low"),
        category="condition",
        source="https://github.com/Morizeyao/GPT2-Chinese/issues/60",
        mistake="The warm-up takes 20 times as many steps as the training has, so the learning rate stays tiny.",
        arguments=("--warmup", "5000"),
    ),
    Fault(
        "half-model",
        "letters-gpt2",
        accepted=("half-precision-underflow", "division-by-zero"),
        category="numerics",
        source="https://github.com/afiaka87/glide-finetune/issues/5",
        mistake="All weights are float16, where the optimizer's eps rounds to zero, so the weights become NaN.",
        edits={
            SCRIPT: replace(
                "AutoModelForCausalLM.from_config(config)", "AutoModelForCausalLM.from_config(config).half()"
            )
        },
    ),
    Fault(
        "decoder-inputs",
        "reverse-t5",
        accepted=("missing-target-shift",),
        category="defect",
        source="https://github.com/huggingface/transformers/issues/11977",
        mistake="The decoder gets the labels themselves as inputs, so it copies them and cannot generate.",
        edits={
            SCRIPT: replace(
                '"labels": labels}', '"labels": labels, "decoder_input_ids": labels.masked_fill(labels < 0, PAD)}'
            )
        },
    ),
    Fault(
        "frozen-base",
        "digits-vit",
        accepted=("frozen-parameters",),
        category="defect",
        source="https://github.com/ihciah/deep-fashion-retrieval/issues/1",
        mistake="Everything but the last layer is frozen, although the weights are random.",
        edits={
            SCRIPT: replace(
                "training = TrainingArguments(",
                "for parameter in model.base_model.parameters():\n"
                "    parameter.requires_grad = False\n"
                "training = TrainingArguments(",
            )
        },
    ),
]
