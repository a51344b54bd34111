"""Whether inputs say anything about labels."""
