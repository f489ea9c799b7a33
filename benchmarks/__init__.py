"""Measurements, always side by side in one run and reported as ratios; nothing here is a test."""
