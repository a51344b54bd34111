"""peft: fine-tuning of few parameters, in a loop like that of its examples and in the Trainer of transformers."""

from field.edits import in_turn, insert_after, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("peft==0.21.2", "transformers==5.23.0", "accelerate==1.15.0"))

PROGRAMS = [
    Program("adapt-lora", "adapt.py", "language", "plain", Metric(HIGHER, 0.82)),
    Program("adapt-dora", "adapt.py", "language", "plain", Metric(HIGHER, 0.78), ("--method", "dora")),
    Program(
        "adapt-ia3",
        "adapt.py",
        "language",
        "plain",
        Metric(HIGHER, 0.7),
        ("--method", "ia3", "--lr", "0.02", "--epochs", "12"),
    ),
    Program("letters-lora", "letters.py", "language", "trainer", Metric(HIGHER, 0.95)),
    Program("letters-rank", "letters.py", "language", "trainer", Metric(HIGHER, 0.9), ("--method", "rslora")),
    Program("letters-half", "letters.py", "language", "trainer", Metric(HIGHER, 0.9), ("--precision", "float16")),
    Program("letters-checkpoints", "letters.py", "language", "trainer", Metric(HIGHER, 0.9), ("--checkpointing",)),
]

FAULTS = [
    Fault(
        "half-adapters",
        "letters-half",
        accepted=("half-precision-underflow", "division-by-zero"),
        category="numerics",
        source="https://github.com/kohya-ss/sd-scripts/issues/1914",
        mistake="The adapters are kept in float16 too, where the optimizer's eps rounds to zero.",
        edits={
            SCRIPT: replace(
                "get_peft_model(base, config)", "get_peft_model(base, config, autocast_adapter_dtype=False)"
            )
        },
    ),
    Fault(
        "early-optimizer",
        "adapt-lora",
        accepted=("parameters-not-optimized",),
        category="defect",
        source="https://github.com/adapter-hub/adapters/issues/260",
        mistake="The optimizer is made before the adapters, so it holds frozen parameters only.",
        edits={
            SCRIPT: in_turn(
                replace(
                    "optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], "
                    "lr=args.lr)\n",
                    "",
                ),
                replace(
                    "model = get_peft_model(",
                    "optimizer = torch.optim.AdamW(base.parameters(), lr=args.lr)\nmodel = get_peft_model(",
                ),
            )
        },
    ),
    Fault(
        "unloaded",
        "adapt-dora",
        accepted=(),
        category="evaluation",
        source="https://github.com/huggingface/peft/issues/503",
        mistake="The adapters are unloaded without being merged, so the base model is what is evaluated.",
        edits={SCRIPT: replace("accuracy(model, sentences(", "accuracy(model.unload(), sentences(")},
    ),
    Fault(
        "debugging",
        "adapt-lora",
        accepted=(),
        category="speed",
        source="https://github.com/stanfordnlp/pyvene/pull/98",
        mistake="The detection of anomalies in backward passes, a help for debugging, was left on.",
        slower=1.5,
        edits={SCRIPT: insert_after("set_seed(args.seed)", "torch.autograd.set_detect_anomaly(True)")},
    ),
]
