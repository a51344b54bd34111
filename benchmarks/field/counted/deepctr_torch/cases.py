"""deepctr-torch: models that predict clicks, with a fit method like that of keras."""

from field.edits import insert_after, replace
from field.programs import HIGHER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("deepctr-torch==0.3.0", "requests==2.32.5"))
REGRESSION = ("--task", "regression", "--lr", "0.01", "--epochs", "18")

PROGRAMS = [
    Program("clicks-fm", "clicks.py", "recommendation", "trainer", Metric(HIGHER, 0.75)),
    Program("clicks-wide", "clicks.py", "recommendation", "trainer", Metric(HIGHER, 0.67), ("--model", "WDL")),
    Program("clicks-attention", "clicks.py", "recommendation", "trainer", Metric(HIGHER, 0.74), ("--model", "AutoInt")),
    Program(
        "clicks-cross",
        "clicks.py",
        "recommendation",
        "trainer",
        Metric(HIGHER, 0.7),
        ("--model", "DCN", "--norm", "--dropout", "0.2", "--lr", "0.003"),
    ),
    Program("rating-fm", "clicks.py", "recommendation", "trainer", Metric(HIGHER, 0.9), REGRESSION),
    Program("histories-din", "histories.py", "recommendation", "trainer", Metric(HIGHER, 0.83)),
    Program(
        "two-tasks",
        "histories.py",
        "recommendation",
        "trainer",
        Metric(HIGHER, 0.83),
        ("--model", "MMOE", "--lr", "0.005", "--epochs", "10"),
    ),
]

FAULTS = [
    Fault(
        "few-rows",
        "clicks-fm",
        accepted=("device-underfilled", "small-kernels", "batch-too-small"),
        category="speed",
        source="https://github.com/chunbaobao/Deep-JSCC-PyTorch/issues/11",
        mistake="Each batch has 16 rows, so nearly all time goes into the overhead of a step.",
        slower=2.0,
        arguments=("--batch-size", "16"),
    ),
    Fault(
        "price-log",
        "rating-fm",
        accepted=("nan-in-inputs",),
        category="numerics",
        source="https://github.com/c2siorg/tensormap/issues/408",
        mistake="The logarithm is taken of prices that may be zero, and scaling turns the infinity into NaN.",
        edits={SCRIPT: replace('= np.log1p(table["price"])', '= np.log(table["price"])')},
    ),
    Fault(
        "pair-rate",
        "clicks-fm",
        accepted=("label-leakage",),
        category="data",
        source="https://github.com/jeongyoonlee/Kaggler/issues/35",
        mistake="The mean target of each pair of user and item is a feature, and most pairs occur once in training.",
        edits={
            SCRIPT: insert_after(
                "train, test = ",
                'rate = train.groupby(["user", "item"]).target.mean().rename("rate")\n'
                'train, test = (part.join(rate, on=["user", "item"]).fillna(rate.mean()) for part in (train, test))\n'
                'dense.append("rate")',
            )
        },
    ),
    Fault(
        "penalty",
        "clicks-attention",
        accepted=("over-regularized",),
        category="condition",
        source="https://github.com/lyst/lightfm/issues/96",
        mistake="The penalty on embeddings is so large that they vanish, and no interaction is learned.",
        arguments=("--model", "AutoInt", "--l2", "1.0"),
    ),
    Fault(
        "lost-order",
        "histories-din",
        accepted=("inputs-and-labels-unrelated",),
        category="data",
        source="https://github.com/DrexelChatbotGroup/DrexelChatbot/issues/15",
        mistake="The rows of the features are shuffled and the targets are not, so they no longer belong together.",
        edits={
            SCRIPT: replace(
                "train = {name: values[:9000] for name, values in data.items()}",
                "order = draw.permutation(9000)\ntrain = {name: values[:9000][order] for name, values in data.items()}",
            )
        },
    ),
]
