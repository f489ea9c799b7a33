"""Small tables for regressions; ``tools/make_tables.py`` drew them from models that it states."""

from __future__ import annotations

from importlib import resources
from typing import Any

from forestmix.errors import MissingExtraError, unknown_name

TABLES = ("clinic", "schools", "seeds")


def load_table(name: str) -> Any:
    """Return a table as a pandas frame.

    "clinic": doctor visits of 150 people in several years (counts, an exposure, a group, some missing ages);
    "schools": marks of pupils in classes in schools (a measurement, nested groups); "seeds": seeds that germinated in
    pots on benches (successes out of trials, a group).
    """
    if name not in TABLES:
        raise unknown_name("name", name, TABLES)
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("load_table needs pandas: pip install 'forestmix[regression]'") from error
    with (resources.files("forestmix.data") / "tables" / f"{name}.csv").open("rb") as stream:
        return pandas.read_csv(stream)
