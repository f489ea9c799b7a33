"""Files of results, posteriors, fits and models: NetCDF-4 that any program reads, without pickle (docs/files.md)."""

from forestmix.files.reading import load
from forestmix.files.writing import save

__all__ = ["load", "save"]
