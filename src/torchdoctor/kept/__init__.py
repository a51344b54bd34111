"""What lies beside a run's record, made ready to be shown: captures, replays, the check of its script. Never torch."""
