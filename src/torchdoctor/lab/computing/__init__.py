"""What the stations compute, with torch. Only the lab's own process imports these."""
