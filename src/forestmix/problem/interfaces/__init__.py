"""Where two layers meet: what rows tell their parents, for each pair of families."""
