"""tab-transformer-pytorch: transformers for tables; the loop is the user's, around model(x_categ, x_cont)."""

from field.edits import in_turn, replace
from field.programs import HIGHER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("tab-transformer-pytorch==0.6.1",))

PROGRAMS = [
    Program("mixed", "mixed.py", "tabular", "plain", Metric(HIGHER, 0.84)),
    Program("mixed-tab", "mixed.py", "tabular", "plain", Metric(HIGHER, 0.84), arguments=("--model", "tab")),
    Program(
        "mixed-compiled",
        "mixed.py",
        "tabular",
        "compiled",
        Metric(HIGHER, 0.84),
        arguments=("--compile", "1", "--epochs", "5"),
    ),
    Program("friedman", "tables.py", "tabular", "no-loader", Metric(HIGHER, 0.82)),
    Program(
        "friedman-brisk",
        "tables.py",
        "tabular",
        "no-loader",
        Metric(HIGHER, 0.7),
        arguments=("--lr", "0.004", "--steps", "300", "--warmup", "30"),
    ),
    Program(
        "wine",
        "tables.py",
        "tabular",
        "no-loader",
        Metric(HIGHER, 0.9),
        arguments=("--data", "wine", "--steps", "150"),
    ),
    Program(
        "cancer",
        "tables.py",
        "tabular",
        "no-loader",
        Metric(HIGHER, 0.92),
        arguments=("--data", "cancer", "--steps", "150"),
    ),
]

FAULTS = [
    Fault(
        "row-by-row",
        "mixed",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/braindecode/braindecode/pull/89",
        mistake="Each sample is looked up in a data frame by iloc, which takes longer than the model.",
        slower=1.5,
        edits={
            "train.py": in_turn(
                replace(
                    "data = TensorDataset(categories[:2400], numbers[:2400], labels[:2400])\n",
                    "names = [*'abcdefghi', 'y']\n"
                    "table = np.concatenate([categories[:2400], numbers[:2400], labels[:2400]], 1)\n"
                    "frame = pd.DataFrame(table, columns=names)\n\n\n"
                    "class Frame(Dataset):\n"
                    "    def __len__(self):\n"
                    "        return len(frame)\n\n"
                    "    def __getitem__(self, index):\n"
                    "        some_categories = torch.tensor(frame[names[:4]].iloc[index].to_numpy()).long()\n"
                    "        some_numbers = torch.tensor(frame[names[4:9]].iloc[index].to_numpy()).float()\n"
                    "        return some_categories, some_numbers, torch.tensor([frame['y'].iloc[index]]).float()\n\n\n"
                    "data = Frame()\n",
                ),
                replace("import numpy as np\n", "import numpy as np\nimport pandas as pd\n"),
                replace("DataLoader, TensorDataset", "DataLoader, Dataset"),
            )
        },
    ),
    Fault(
        "brain-floats",
        "friedman",
        accepted=("half-precision-underflow",),
        category="numerics",
        source="https://github.com/areal-project/AReaL/pull/1369",
        mistake="The weights themselves are bfloat16, so that small updates are lost in rounding.",
        edits={
            "train.py": in_turn(
                replace("optimizer = torch", "model.to(torch.bfloat16)\noptimizer = torch"),
                replace(
                    "predicted = model(empty[chosen], x[chosen])",
                    "predicted = model(empty[chosen], x[chosen].bfloat16()).float()",
                ),
                replace("dtype=torch.long), x_test)", "dtype=torch.long), x_test.bfloat16()).float()"),
            )
        },
    ),
    Fault(
        "raw-columns",
        "cancer",
        accepted=("unnormalized-inputs",),
        category="data",
        source="https://github.com/lucidrains/tab-transformer-pytorch/pull/2",
        mistake="Continuous columns are not normalized, though the model assumes it.",
        arguments=("--data", "cancer", "--steps", "150", "--scale", "0"),
    ),
    Fault(
        "long-warmup",
        "friedman",
        accepted=("scheduler-misuse", "learning-rate-too-low"),
        category="condition",
        source="https://github.com/PeterGriffinJin/Search-R1/issues/28",
        mistake="The warm-up is much longer than the run, so the learning rate stays far below its peak.",
        arguments=("--warmup", "10000"),
    ),
]
