"""What a benchmark found, as plain data: kept in one JSON file, from which the page is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE, POSTERIOR_FILE, REGRESSION_FILE = "benchmarks.json", "posteriors.json", "regression_measured.json"


@dataclass
class Table:
    """A table of text; the first column names what a row is about."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Target:
    """A claim with its target, what was measured, and whether that meets it; ``None`` where it could not be told."""

    claim: str
    target: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """Return the outcome in a word or two."""
        return {True: "met", False: "missed", None: "not measured"}[self.met]


@dataclass
class Section:
    """One benchmark: its page section, and numbers for the plots.

    ``notes`` are paragraphs under the title; ``series`` holds whatever the figures need, as plain data.
    """

    name: str
    title: str
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)
    size: str = ""
    seconds: float = 0.0
    date: str = ""


@dataclass
class Results:
    """All sections, by name, with the facts of the machine they were measured on."""

    facts: dict[str, str]
    sections: dict[str, Section]

    def merged(self, new: Mapping[str, Section], facts: dict[str, str]) -> Results:
        """Return these results with the new sections in the place of the old ones of the same name."""
        return Results(facts, {**self.sections, **new})


def save(results: Results, path: Path) -> None:
    """Write the results whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(results), indent=1) + "\n", "utf-8")
    partial.replace(path)


def load(path: Path) -> Results:
    """Return the stored results; empty ones if there are none yet."""
    if not path.exists():
        return Results({}, {})
    stored = json.loads(path.read_text("utf-8"))
    return Results(stored["facts"], {name: _section(plain) for name, plain in stored["sections"].items()})


def _section(plain: dict[str, Any]) -> Section:
    tables = [Table(**table) for table in plain.pop("tables")]
    targets = [Target(**target) for target in plain.pop("targets")]
    return Section(**plain, tables=tables, targets=targets)
