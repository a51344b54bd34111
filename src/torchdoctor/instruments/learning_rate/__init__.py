"""The learning rate: the range test that finds one, schedules, and a rate for another batch size."""
