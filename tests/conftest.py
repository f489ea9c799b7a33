"""Fixtures that several files of tests use."""
