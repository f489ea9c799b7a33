"""The command line, ``forestmix``."""

from forestmix.cli.app import app, main

__all__ = ["app", "main"]
