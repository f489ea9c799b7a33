"""The problems that contenders are given, and the independent judges of their answers."""
