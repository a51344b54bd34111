"""The live page over a folder of runs: a local server that only reads what trainings write. Never imports torch."""
