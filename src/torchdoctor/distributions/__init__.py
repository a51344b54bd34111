"""What chance gives: tails of distributions and intervals from them, with numpy alone."""
