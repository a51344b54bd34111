"""torch-geometric: models and loaders, trained in the loop of its documentation."""

from field.edits import drop_line, in_turn, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("torch-geometric==2.8.1",), sources=("torch-geometric==2.8.1",))

PROGRAMS = [
    Program("nodes-gcn", "nodes.py", "graph", "no-loader", Metric(HIGHER, 0.85)),
    Program("nodes-gat", "nodes.py", "graph", "no-loader", Metric(HIGHER, 0.8), ("--model", "GAT", "--epochs", "100")),
    Program(
        "nodes-sage",
        "nodes.py",
        "graph",
        "no-loader",
        Metric(HIGHER, 0.75),
        ("--model", "GraphSAGE", "--lr", "0.02", "--epochs", "100"),
    ),
    Program("graphs-gin", "molecules.py", "graph", "plain", Metric(HIGHER, 0.9)),
    Program("graphs-mean", "molecules.py", "graph", "plain", Metric(HIGHER, 0.9), ("--conv", "graph")),
    Program(
        "property",
        "molecules.py",
        "graph",
        "plain",
        Metric(LOWER, 0.6),
        ("--task", "value", "--conv", "graph", "--lr", "0.003"),
    ),
    Program("links-gae", "links.py", "graph", "no-loader", Metric(HIGHER, 0.84)),
    Program("links-vgae", "links.py", "generative", "no-loader", Metric(HIGHER, 0.84), ("--variational",)),
]

FAULTS = [
    Fault(
        "edge-list",
        "nodes-gcn",
        accepted=(),
        category="data",
        source="https://github.com/c2g-dev/city2graph/pull/157",
        mistake="Each undirected edge is listed once, so messages pass in one direction only.",
        edits={SCRIPT: replace("edge_index=edge_index,", "edge_index=edge_index[:, edge_index[0] < edge_index[1]],")},
    ),
    Fault(
        "many-layers",
        "nodes-gcn",
        accepted=("signal-lost-in-depth", "representation-collapse", "vanishing-gradients"),
        category="condition",
        source="https://github.com/yl-1993/learn-to-cluster/issues/23",
        mistake="Sixteen plain convolutions smooth all nodes to the same features.",
        arguments=("--layers", "16"),
    ),
    Fault(
        "test-mode",
        "nodes-gat",
        accepted=("train-mode-in-evaluation",),
        category="evaluation",
        source="https://github.com/giotto-ai/giotto-deep/issues/40",
        mistake="The model stays in training mode for validation and test, so dropout disturbs what is measured.",
        edits={SCRIPT: drop_line("model.eval()")},
    ),
    Fault(
        "file-order",
        "graphs-gin",
        accepted=("not-shuffled",),
        category="data",
        source="https://github.com/megvii-model/ShuffleNet-Series/issues/24",
        mistake="The training graphs come class by class, and the loader does not shuffle them.",
        edits={
            SCRIPT: replace(
                "DataLoader(graphs[:700], batch_size=args.batch_size, shuffle=True)",
                "DataLoader(sorted(graphs[:700], key=lambda graph: int(graph.y)), batch_size=args.batch_size)",
            )
        },
    ),
    Fault(
        "edge-weights",
        "nodes-gcn",
        accepted=(),
        category="numerics",
        source="https://github.com/pyg-team/pytorch_geometric/issues/2073",
        mistake="The edge weights are signed, so some degrees are negative and their roots NaN.",
        edits={
            SCRIPT: in_turn(
                replace(
                    "data = transform(data)",
                    "data = transform(data)\nweight = torch.randn(edge_index.shape[1])",
                ),
                replace("model(data.x, data.edge_index)", "model(data.x, data.edge_index, weight)", times=2),
            )
        },
    ),
]
