"""Files of results, posteriors, fits and models: NetCDF-4 that any program reads, without pickle (docs/files.md)."""

from forestmix.files.saving import load, save

__all__ = ["load", "save"]
