"""The output folder: tables as CSV, settings as JSON, pictures; every file is written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import forestmix as fmx
from forestmix.paper.curves import Curve, Panel, labels, pooled, thinned
from forestmix.paper.run import Outcome
from forestmix.saving import replacing

_LIBRARIES = ("forestmix", "numpy", "scipy", "numba")


def prepare_folder(folder: Path) -> None:
    """Make the output folder if need be."""
    if folder.exists() and not folder.is_dir():
        raise fmx.ArgumentError(f"--out must be a folder; got {str(folder)!r}, which is a file.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fmx.ForestmixError(f"cannot make the folder {folder}: {error}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file."""
    try:
        with replacing(path) as beside:
            beside.write_bytes(content)
    except OSError as error:
        raise fmx.ForestmixError(f"cannot write {path}: {error}") from error


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write tables, settings, claims and pictures into a folder."""
    prepare_folder(folder)
    for panel in outcome.panels:
        _write_panel(folder, panel)
    if outcome.races:
        _write_races(folder, outcome.races)
    rows = list(summary(outcome.panels))
    write_bytes(folder / "summary.csv", csv_bytes(list(rows[0]), ([*row.values()] for row in rows)))
    settings = asdict(outcome.settings) | {"seeds": list(outcome.settings.seeds), "versions": environment()}
    for name, content in (("claims", [asdict(claim) for claim in outcome.claims]), ("settings", settings)):
        write_bytes(folder / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
    for name, picture in outcome.pictures.items():
        if not name.endswith("-narrow.svg"):  # which only the report needs
            write_bytes(folder / name, picture)


def summary(panels: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    """Yield median, least and greatest loss and gap at the end of each curve, over images and seeds."""
    for panel in panels:
        for label in labels(panel.curves):
            row: dict[str, Any] = {"panel": panel.name, "curve": label}
            columns = {name: pooled(panel.curves, label, name) for name in ("loss", "gap")}
            row |= {"runs": columns["loss"].shape[1], "iteration": len(columns["loss"]) - 1}
            for name, values in columns.items():
                parts = (("median", np.median), ("min", np.min), ("max", np.max))
                row |= {f"{name}_{part}": float(function(values[-1])) for part, function in parts}
            yield row


def summary_table(panels: Iterable[Panel]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the summary for people: each number as median (least to greatest)."""

    def spread(row: dict[str, Any], name: str) -> str:
        return f"{row[f'{name}_median']:.3g} ({row[f'{name}_min']:.3g} to {row[f'{name}_max']:.3g})"

    header = ["panel", "curve", "runs", "loss", "relative gap to the optimum"]
    rows = [
        [row["panel"], row["curve"], str(row["runs"]), spread(row, "loss"), spread(row, "gap")]
        for row in summary(panels)
    ]
    return header, rows


def environment() -> dict[str, str]:
    """Return the versions that a run depends on."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES}
    return versions | {"platform": platform.platform(), "processor": platform.machine()}


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a CSV file; numbers in full, so that they read back as the same floats."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([value.item() if isinstance(value, np.generic) else value for value in row] for row in rows)
    return stream.getvalue().encode()


def _points(curve: Curve) -> Iterator[tuple[Any, ...]]:
    """Yield label, seed, image, parallel steps, sweeps, loss and gap of each point of a curve."""
    for place, image in enumerate(curve.images):
        for row in zip(curve.step, curve.sweeps, curve.loss[:, place], curve.gap[:, place], strict=True):
            yield (curve.label, curve.seed, image, *row)


def _write_panel(folder: Path, panel: Panel) -> None:
    """Write every curve of a panel; an iteration is one parallel step."""
    header = ("curve", "seed", "image", "iteration", "loss", "gap")
    rows = ([*point[:4], *point[5:]] for curve in panel.curves for point in _points(curve))
    write_bytes(folder / f"{panel.name}.csv", csv_bytes(header, rows))


def _write_races(folder: Path, races: Sequence[Panel]) -> None:
    """Write the curves beyond the paper; seconds, which are never the same twice, in a file of their own."""
    thin = [(race.name, thinned(curve)) for race in races for curve in race.curves]
    header = ("problem", "curve", "seed", "image", "step", "sweeps", "loss", "gap")
    rows = ([problem, *point] for problem, curve in thin for point in _points(curve))
    write_bytes(folder / "beyond.csv", csv_bytes(header, rows))
    times = (
        (problem, curve.label, step, sweeps, seconds)
        for problem, curve in thin
        for step, sweeps, seconds in zip(curve.step, curve.sweeps, curve.seconds, strict=True)
    )
    write_bytes(folder / "timings.csv", csv_bytes(("problem", "curve", "step", "sweeps", "seconds"), times))
