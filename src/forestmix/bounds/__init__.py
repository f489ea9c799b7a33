"""Bounds on the evidence, their auxiliary parameters, and the evidence itself where it is known."""
