"""vector-quantize-pytorch: quantizers inside autoencoders, in the loop of its examples."""

from field.edits import in_turn, replace
from field.programs import LOWER, SCRIPT, Environment, Fault, Metric, Program

ENVIRONMENT = Environment(requires=("vector-quantize-pytorch==1.32.0",), sources=("vector-quantize-pytorch==1.32.0",))

PROGRAMS = [
    Program("vq", "coded.py", "generative", "plain", Metric(LOWER, 0.013)),
    Program("cosine", "coded.py", "generative", "plain", Metric(LOWER, 0.012), ("--quantizer", "cosine")),
    Program("residual", "coded.py", "generative", "plain", Metric(LOWER, 0.009), ("--quantizer", "residual")),
    Program("sim", "coded.py", "generative", "plain", Metric(LOWER, 0.03), ("--quantizer", "sim")),
    Program("fsq", "coded.py", "generative", "plain", Metric(LOWER, 0.012), ("--quantizer", "fsq")),
]

FAULTS = [
    Fault(
        "commitment",
        "vq",
        accepted=(),
        category="condition",
        source="https://github.com/lucidrains/vector-quantize-pytorch/issues/69",
        mistake="The commitment loss weighs a hundred times too much and drowns the reconstruction.",
        arguments=("--commitment", "100"),
    ),
    Fault(
        "lookup",
        "vq",
        accepted=("disconnected-parameters",),
        category="defect",
        source="https://github.com/NTU-AIoT-Lab/EfficientFi/issues/4",
        mistake="The decoder gets codes that were looked up, so no gradient of its loss reaches the encoder.",
        edits={
            SCRIPT: in_turn(
                replace("quantized, _, loss = self.quantizer(z)", "_, indices, loss = self.quantizer(z)"),
                replace(
                    "        return self.decoder(quantized",
                    "            quantized = self.quantizer.get_output_from_indices(indices)\n"
                    "        return self.decoder(quantized",
                ),
            )
        },
    ),
    Fault(
        "few-codes",
        "cosine",
        accepted=("capacity-too-low",),
        category="condition",
        source="https://github.com/lucidrains/vector-quantize-pytorch/issues/69",
        mistake="The codebook has two codes, so a place of the image carries one bit.",
        arguments=("--quantizer", "cosine", "--codes", "2"),
    ),
]
