"""Reports: each is one HTML page that holds all it shows."""

from forestmix.report.experiments import write_report
from forestmix.report.saved import render_saved, write_saved

__all__ = ["render_saved", "write_report", "write_saved"]
