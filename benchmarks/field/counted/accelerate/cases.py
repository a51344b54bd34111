"""accelerate: a wrapper of one's own loop; these loops follow its documentation."""

from field.edits import drop_line, in_turn, replace
from field.programs import HIGHER, LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("accelerate==1.15.0",))

PROGRAMS = [
    Program("images", "images.py", "vision", "plain", Metric(HIGHER, 0.96)),
    Program(
        "images-accumulated",
        "images.py",
        "vision",
        "plain",
        Metric(HIGHER, 0.95),
        ("--accumulate", "2", "--batch-size", "16"),
    ),
    Program("images-mixed", "images.py", "vision", "plain", Metric(HIGHER, 0.95), ("--precision", "bf16")),
    Program("images-compiled", "images.py", "vision", "compiled", Metric(HIGHER, 0.95), ("--compile", "--epochs", "6")),
    Program("boxes", "boxes.py", "detection", "plain", Metric(HIGHER, 0.85)),
    Program("adversaries", "adversaries.py", "generative", "several-optimizers", Metric(LOWER, 0.16)),
    Program("commands", "commands.py", "speech", "plain", Metric(HIGHER, 0.85)),
]

FAULTS = [
    Fault(
        "new-workers",
        "images",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/metatensor/metatrain/pull/1271",
        mistake="Four workers are started anew in each epoch for a small data set that is in memory already.",
        slower=1.25,
        arguments=("--workers", "4"),
    ),
    Fault(
        "per-sample",
        "commands",
        accepted=("input-bound",),
        category="speed",
        source="https://github.com/NVIDIA/OpenSeq2Seq/pull/285",
        mistake="The spectrogram of each sample is computed anew on each access, one at a time, in the data set.",
        slower=1.25,
        edits={
            SCRIPT: in_turn(
                replace("import argparse\n", "import argparse\n\nfrom scipy.signal import stft\n"),
                replace(
                    "        return self.sounds[index], self.words[index]",
                    "        waves = stft(self.sounds[index].numpy(), RATE, nperseg=128, noverlap=64)[2]\n"
                    "        power = torch.from_numpy(waves).abs() ** 2\n"
                    "        logs = torch.log(power * 4096 + 1e-6)\n"
                    "        return (logs - logs.mean()) / logs.std(), self.words[index]",
                ),
                replace("self.front(spectrogram(sounds))", "self.front(sounds)"),
            )
        },
    ),
    Fault(
        "silence",
        "commands",
        accepted=("log-of-zero",),
        category="numerics",
        source="https://github.com/kymatio/kymatio/pull/72",
        mistake="The logarithm of the power is taken without a floor, and the silent ends have no power.",
        edits={SCRIPT: replace("torch.log(power + 1e-6)", "torch.log(power)")},
    ),
    Fault(
        "overlap-loss",
        "boxes",
        accepted=("log-of-zero",),
        category="numerics",
        source="https://github.com/open-mmlab/mmdetection/pull/733",
        mistake="The loss is the logarithm of the overlap, which is zero for boxes that do not meet.",
        edits={
            SCRIPT: replace("5 * nn.functional.l1_loss(found, box)", "-torch.log(overlap(found, box)).mean()"),
        },
    ),
    Fault(
        "idle-critic",
        "adversaries",
        accepted=("no-parameter-update",),
        category="defect",
        source="https://github.com/zhaoyuzhi/deepfillv2/issues/6",
        mistake="The critic's optimizer never steps, so the generator learns to please a random critic.",
        edits={SCRIPT: drop_line("optimizer_d.step()")},
    ),
]
