"""The state of a training, to see whether it comes again."""
