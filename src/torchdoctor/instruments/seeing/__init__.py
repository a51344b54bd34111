"""To look at: batches as the model sees them, its worst mistakes, where it attends, and what moves its answer."""
