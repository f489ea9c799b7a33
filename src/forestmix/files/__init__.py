"""Files of results, posteriors, fits and models: NetCDF-4 that any program reads, without pickle (docs/files.md)."""

from forestmix.files.load import load
from forestmix.files.save import save

__all__ = ["load", "save"]
