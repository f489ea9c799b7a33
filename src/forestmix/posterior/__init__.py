"""What a run returns, and the posterior that people report."""
