"""A copy of a user's script runs its first steps; then its loop is taken over, for checks and instruments."""
