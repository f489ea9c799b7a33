"""The report of a run: one HTML page that holds all it shows."""

from forestmix.report.page import write_report

__all__ = ["write_report"]
