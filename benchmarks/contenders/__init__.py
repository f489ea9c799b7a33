"""One file for each library; a contender takes a problem's folder and answers the calls of a ``harness.Worker``."""
