"""snntorch: spiking networks; the loop is backprop.BPTT, or the user's own as in the tutorials."""

from field.edits import drop_line, in_turn, replace
from field.programs import HIGHER, LOWER, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("snntorch==1.0.0",))

PROGRAMS = [
    Program("digits", "digits.py", "vision", "trainer", Metric(HIGHER, 0.85)),
    Program(
        "digits-counted",
        "digits.py",
        "vision",
        "trainer",
        Metric(HIGHER, 0.85),
        arguments=("--loss", "mse_count_loss"),
    ),
    Program(
        "digits-convolutional",
        "digits.py",
        "vision",
        "trainer",
        Metric(HIGHER, 0.8),
        arguments=("--network", "convolutional", "--loss", "ce_count_loss", "--lr", "0.005"),
    ),
    Program("membranes", "membranes.py", "vision", "plain", Metric(HIGHER, 0.85)),
    Program("membranes-rate", "membranes.py", "vision", "plain", Metric(HIGHER, 0.8), arguments=("--encoding", "rate")),
    Program("membranes-beta", "membranes.py", "vision", "plain", Metric(HIGHER, 0.85), arguments=("--learn-beta", "1")),
    Program("curve", "curve.py", "time-series", "plain", Metric(LOWER, 0.3)),
]

FAULTS = [
    Fault(
        "high-threshold",
        "digits",
        accepted=(),
        category="condition",
        source="https://github.com/yjwu17/STBP-for-training-SpikingNN/issues/6",
        mistake="The firing threshold is so high that hardly any neuron spikes, so there is no signal.",
        arguments=("--threshold", "50"),
    ),
    Fault(
        "state-kept",
        "curve",
        accepted=("graph-kept-alive",),
        category="defect",
        source="https://github.com/jeshraghian/snntorch/issues/340",
        mistake="Membrane potentials and their graph are carried over from the last batch, so backward fails.",
        edits={
            "train.py": in_turn(
                replace(
                    "mem1, mem2, mem3 = self.lif1.init_leaky(), self.lif2.init_leaky(), self.out.init_leaky()\n",
                    "if not hasattr(self, 'state'):\n"
                    "            self.state = self.lif1.init_leaky(), self.lif2.init_leaky(), self.out.init_leaky()\n"
                    "        mem1, mem2, mem3 = self.state\n",
                ),
                replace(
                    "        return torch.stack(membranes)\n",
                    "        self.state = mem1, mem2, mem3\n        return torch.stack(membranes)\n",
                ),
            )
        },
    ),
    Fault(
        "gradients-kept",
        "membranes",
        accepted=("missing-zero-grad",),
        category="defect",
        source="https://github.com/snakers4/silero-vad/pull/699",
        mistake="The gradients are not cleared before backward, so they accumulate over all batches.",
        edits={"train.py": drop_line("optimizer.zero_grad()")},
    ),
]
