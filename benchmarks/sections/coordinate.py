"""The compiled coordinate methods beside forest mixture: the seconds of one sweep over all latents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import forestmix as fmx
from benchmarks.harness.results import Section, Table
from benchmarks.harness.rounds import ratios, seconds_text, take_turns, times

#: size: side of the windowed image, shape of the dense W, rounds
SIZES = {"small": (20, (200, 50), 3), "default": (80, (2000, 400), 3), "large": (256, (8000, 2000), 9)}
#: Iterations of a timed run; the first is left out.
ITERATIONS = 3
REFERENCE = "forest mixture"
FAMILIES = {"Gaussian": fmx.Gaussian(1.0), "Bernoulli": fmx.Bernoulli()}


def algorithms(m: int) -> dict[str, Any]:
    """Return the contenders for m latents, in two blocks where they take blocks."""
    halves = np.array_split(np.arange(m), 2)
    return {
        REFERENCE: fmx.ForestMixture(accelerate=False),
        "CAVI, cyclic": fmx.CAVI(),
        "CAVI, random order": fmx.CAVI("random"),
        "blocks, 2": fmx.BlockCoordinate(halves),
        "Hogwild, 2 blocks": fmx.Hogwild(2),
    }


def sweep(model: fmx.DEF, x: np.ndarray, algorithm: Any) -> Callable[[], float]:
    """Return a call that gives the median seconds of an iteration, which for these algorithms is one sweep."""

    def run() -> float:
        trace = fmx.infer(model, x, algorithm, tol=1e-15, max_iter=ITERATIONS).trace
        steps = np.diff(trace.seconds)
        return float(np.median(steps[1:] if len(steps) > 1 else steps))

    return run


def compare(title: str, W: Any, family: str, repeats: int) -> Table:
    """Return the table of one model."""
    model = fmx.DEF(fmx.Layer(FAMILIES[family], W))
    x = model.sample(rng=0).x
    runs = {name: sweep(model, x, algorithm) for name, algorithm in algorithms(model.n_latent).items()}
    for run in runs.values():
        run()  # compile
    rounds = take_turns(runs, repeats, allowance=2.0)
    table = Table(f"{family} rows, {title}", ["algorithm", "seconds per sweep", "relative to forest mixture"])
    for name in runs:
        seconds = seconds_text(times(rounds, name).middle)
        table.rows.append([name, seconds, ratios(rounds, name, REFERENCE).text("x")])
    return table


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run both families on windows and on a dense W."""
    side, shape, repeats = SIZES[size]
    weights = {
        f"{side} x {side} image, 7 x 7 windows": fmx.windows((side, side), 7, "centred") / 7,
        f"dense {shape[0]} x {shape[1]}": np.random.default_rng(0).standard_normal(shape) / np.sqrt(shape[1]),
    }
    note = (
        "A sweep updates every latent once. Coordinate methods use each update in the next and so need fewer sweeps; a "
        "forest mixture iteration updates all at once. Evaluating the objective after each sweep is part of all times."
    )
    section = Section("coordinate", "Coordinate methods", [note])
    for title, W in weights.items():
        for family in FAMILIES:
            say(f"{family} rows, {title}")
            section.tables.append(compare(title, W, family, repeats))
    return section
