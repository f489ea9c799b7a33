"""Files larger than memory, and clusters: what they cost, beside what people use now.

Tables: passes over a file relative to reading it; constants of the cost model of docs/scaling.md, and steps on 1 to 4
local workers beside what it says; logistic regression beside dask-ml and dask-glm, each to the same accuracy.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks import cluster_efficiency
from benchmarks.beside_dask import beside
from benchmarks.cost_model import clusters
from benchmarks.harness.facts import load_note
from benchmarks.harness.results import Section, Table
from benchmarks.harness.rounds import seconds_text
from benchmarks.streaming import Say, best, stream
from forestmix.inference.checkpoint import _write

#: size: rows of the file, rows on workers, rows of the regression, rows for the efficiency of two workers.
SIZES = {
    "small": (20_000, 8_000, 4_000, 320_000),
    "default": (400_000, 2_500_000, 50_000, 8_000_000),
    "large": (2_000_000, 5_000_000, 1_000_000, 40_000_000),
}


def checkpoints(section: Section) -> None:
    """Add the seconds that a checkpoint takes."""
    table = Table("Writing a checkpoint of 12 vectors", ["latents", "seconds"])
    with tempfile.TemporaryDirectory() as folder:
        for latents in (10_000, 1_000_000):
            state = {"pairs": [np.ones((1, latents)) for _ in range(12)]}
            spent = best(lambda state=state: _write(Path(folder) / "run.npz", state), 3)
            table.rows.append([str(latents), seconds_text(spent)])
    section.tables.append(table)


def show(section: Section, first: int = 0) -> None:
    """Print the tables from one on: what has been measured is not lost with what comes after it."""
    for table in section.tables[first:]:
        print("", table.title, *(" | ".join(row) for row in (table.columns, *table.rows)), sep="\n", flush=True)


def measure(size: str, say: Say) -> Section:
    """Measure all of it."""
    section = Section("scaling_out", "Files larger than memory, and clusters")
    section.notes.append("The cost model, its constants and what they mean are in [scaling](scaling.md).")
    section.notes.append(load_note())
    *sizes, on_two = SIZES[size]
    for part, rows in zip((stream, clusters, beside), sizes, strict=True):
        known = len(section.tables)
        part(section, rows, say)
        show(section, known)
    checkpoints(section)
    cluster_efficiency.add(section, on_two, say)
    return section
