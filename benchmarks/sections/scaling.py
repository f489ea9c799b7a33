"""Time and memory of a plain iteration as W grows."""

from __future__ import annotations

import re
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import Rounds, Spread, seconds_text, take_turns, times
from benchmarks.harness.worker import ContenderError, Worker
from benchmarks.sections.iteration import full_iteration, reading

#: size: entries of the dense and of the sparse W, rounds
SIZES = {
    "small": ((1e4, 1e5, 1e6), (1e4, 1e5, 1e6), 3),
    "default": ((1e4, 1e5, 1e6, 1e7, 2e7, 3e7, 6e7, 1e8), (1e4, 1e5, 1e6, 1e7, 2e7, 4e7, 1e8), 5),
    "large": ((1e4, 1e5, 1e6, 3e6, 1e7, 2e7, 3e7, 6e7, 1e8), (1e4, 1e5, 1e6, 3e6, 1e7, 2e7, 4e7, 1e8), 15),
}
#: Entries from which on W is larger than a cache of 32 MiB, four times over: of 80 MB a good part is still found there,
#: and reading alone would not be linear.
BEYOND_CACHE = 1.6e7
SLOPE_TOLERANCE = 0.05
#: Seconds within which there are more rounds.
SPARE = 8.0
#: Entries of a row of the dense W, and pixels of a row of the images, which are square at 2.4e7, 4.8e7 and 9.6e7.
ROW, WIDTHS = 2000, (700, 990, 1400)
MOST_VECTORS = 30
SELF = "benchmarks.sections.scaling:ResidentMemory"


def dense_weights(entries: float) -> list[np.ndarray]:
    """Return a W with about so many entries, of more and more rows: like those of windows they stay as they are."""
    W = np.empty((max(1, round(entries / ROW)), ROW))
    np.random.default_rng(0).random(out=W)
    W -= 0.5
    return [W]


def sparse_weights(entries: float) -> list[Any]:
    """Return 7 x 7 windows with about so many entries: rows of neighbouring pixels use neighbouring latents.

    There are images of several widths. How far apart the latents of a window lie says what they share in the caches:
    with the width, the time for an entry changes by a tenth and more.
    """
    pixels = entries / 49
    if pixels < min(WIDTHS) ** 2 / 4:
        side = max(8, round(pixels**0.5))
        return [fmx.windows((side, side), 7, "centred")]
    return [fmx.windows((round(pixels / width), width), 7, "centred") for width in WIDTHS]


BUILD = {"dense": dense_weights, "sparse": sparse_weights}


class ResidentMemory:
    """The largest resident set of a fresh process, before and after a model and its iterations."""

    def __init__(self, folder: Path, kind: str, entries: float) -> None:
        full_iteration(BUILD[kind](1e4)[0])()  # compile before anything is compared
        self.W = BUILD[kind](entries)[0]

    def grow(self) -> float:
        """Return by how many bytes model, data and iterations raise the resident set at its largest; Linux only."""
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # forgets the largest set so far
        iterations(self.W)
        return resident("VmHWM") - before


def resident(which: str) -> float:
    """Return a line of the process's status in bytes: VmRSS, the resident set, or VmHWM, its largest."""
    found = re.search(rf"{which}:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    if found is None:
        raise OSError(f"this system does not report {which}")
    return 1024.0 * float(found.group(1))


def iterations(W: Any) -> None:
    """Make a model with W, data, and a few iterations."""
    run = full_iteration(W)
    for _ in range(3):
        run()


def traced_peak(W: Any) -> int:
    """Return the most bytes that a model and its iterations hold at once beyond W and x, with what is kept."""
    tracemalloc.start()
    try:
        iterations(W)
        return tracemalloc.get_traced_memory()[1] - 8 * W.shape[0]
    finally:
        tracemalloc.stop()


def measure_kind(
    kind: str, sizes: tuple[float, ...], repeats: int, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], Rounds]:
    """Return entries, seconds and bytes at each size, and the seconds of all rounds.

    Sizes take turns, so that a slow minute slows all of them.
    """
    weights = []
    for entries in sizes:
        say(f"{kind}, {entries:.0e} entries")
        weights.append(BUILD[kind](entries))
    runs = {}
    for number, (entries, alike) in enumerate(zip(sizes, weights, strict=True)):
        runs |= {f"iteration {number}, {k}": several(full_iteration(W), entries) for k, W in enumerate(alike)}
        if kind == "dense":
            runs[f"reading {number}"] = several(reading(alike[0]), entries)
    for run in runs.values():
        run()  # compile
    say(f"{kind}, {repeats} rounds")
    rounds = take_turns(runs, repeats, spare=SPARE)
    points = []
    for number, alike in enumerate(weights):
        W, entries = alike[0], [int(W.nnz if kind == "sparse" else W.size) for W in alike]
        each = [rounds[f"iteration {number}, {k}"] for k in range(len(alike))]
        # The mean over shapes, of the time for an entry, round by round.
        mean = np.mean([np.array(found) / count for found, count in zip(each, entries, strict=True)], axis=0)
        rounds[f"iteration {number}"] = (entries[0] * mean).tolist()
        points.append({
            "entries": entries[0],
            "seconds": times(rounds, f"iteration {number}").middle,
            "each": [1e9 * median(found) / count for found, count in zip(each, entries, strict=True)],
            "reading": times(rounds, f"reading {number}").middle if kind == "dense" else None,
            "bytes": traced_peak(W),
            "n": W.shape[0],
            "m": W.shape[1],
        })  # fmt: skip
    return points, rounds


def several(run: Callable[[], float], entries: float) -> Callable[[], float]:
    """Return a run that gives the median of several in a row, as the iterations of a run follow each other.

    There are more of them where W is small: the first ones find threads asleep and caches full of another W.
    """
    count = min(200, max(5, int(3e8 / entries)))
    return lambda: median(run() for _ in range(count))


def slope(points: list[dict[str, Any]], rounds: Rounds, what: str = "iteration") -> Spread | None:
    """Return the slopes of log time against log entries above cache sizes, a line for each round.

    ``None`` with fewer than two sizes there.
    """
    large = {number: point["entries"] for number, point in enumerate(points) if point["entries"] >= 0.9 * BEYOND_CACHE}
    if len(large) < 2:
        return None
    seconds = np.array([rounds[f"{what} {number}"] for number in large], float)
    return Spread.of(np.polyfit(np.log(list(large.values())), np.log(seconds), 1)[0].tolist())


def slope_of_squares(points: list[dict[str, Any]]) -> float | None:
    """Return the slope over the large images that are closest to square, which get wider with each size."""
    large = [point for point in points if len(point["each"]) == len(WIDTHS) and point["entries"] >= 0.9 * BEYOND_CACHE]
    if len(large) < 2:
        return None
    closest = [int(np.argmin(np.abs(np.log(np.square(WIDTHS) / point["n"])))) for point in large]
    entries = np.array([point["entries"] for point in large], float)
    seconds = entries * [point["each"][k] for point, k in zip(large, closest, strict=True)]
    return float(np.polyfit(np.log(entries), np.log(seconds), 1)[0])


def resident_vectors(kind: str, point: dict[str, Any]) -> str:
    """Return the growth of a child process's resident set, in vectors of n + m numbers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Worker(SELF, Path(folder), kind=kind, entries=float(point["entries"])) as worker:
                grown = worker.call("grow", 120.0).value
        except ContenderError as error:
            return f"not measured: {error}"
    return f"{grown / 8 / (point['n'] + point['m']):.1f} ({grown / 2**20:.1f} MiB)"


def measure(size: str, say: Callable[[str], None]) -> Section:
    """Run dense and sparse weights of growing size, Gaussian rows."""
    dense_sizes, sparse_sizes, repeats = SIZES[size]
    note = (
        "One plain iteration, Gaussian rows, objective elbo, float64; the median of several that follow each other. "
        f"A dense W has rows of {ROW:,} entries, and more and more of them. A sparse one has windows of an image, rows "
        "of 49 entries. The time for an entry depends on how wide the image is, for that says what latents of a window "
        f"share in the caches, so each large size has three images, {', '.join(map(str, WIDTHS))} pixels wide, which "
        "would be square at 2.4e7, 4.8e7 and 9.6e7 entries; their mean counts, and each is in the table. Vectors: the "
        "most memory that a model and its iterations hold beyond W and x, in "
        "vectors of n + m numbers, as NumPy reports it; for the largest W also by how much the resident set of a "
        f"process grows, x included. Slopes are over sizes from {BEYOND_CACHE:.2g} entries on, where W is four times "
        "as large as a cache of 32 MiB; smaller ones are partly found there. Each round gives a slope; their median "
        "counts."
    )
    section = Section("scaling", "Cost and memory as W grows", [note])
    for kind, sizes in (("dense", dense_sizes), ("sparse", sparse_sizes)):
        points, rounds = measure_kind(kind, sizes, repeats, say)
        section.series[kind] = points
        last = "reading W" if kind == "dense" else "ns for each width"
        table = Table(f"{kind} W", ["entries", "n x m", "time", "ns per entry", last, "vectors"])
        for point in points:
            vectors = point["bytes"] / 8 / (point["n"] + point["m"])
            each = ", ".join(f"{value:.3f}" for value in point["each"])
            table.rows.append(
                [f"{point['entries']:,}", f"{point['n']:,} x {point['m']:,}", seconds_text(point["seconds"]),
                 f"{1e9 * point['seconds'] / point['entries']:.3f}",
                 seconds_text(point["reading"]) if point["reading"] else each, f"{vectors:.1f}"]
            )  # fmt: skip
        if kind == "dense" and (read := slope(points, rounds, "reading")) is not None:
            section.notes.append(f"Reading a dense W in a plain loop has a slope of {read.text()} over the same sizes.")
        if kind == "sparse" and (squares := slope_of_squares(points)) is not None:
            section.notes.append(
                "Over those of the images that are closest to square at their size, and so wider and wider, the slope "
                f"is {squares:.3f}: that has the effect of the width in it, too."
            )
        section.tables.append(table)
        section.targets += targets(kind, points, slope(points, rounds))
        section.notes.append(f"Resident set, largest {kind} W: {resident_vectors(kind, points[-1])} vectors.")
    return section


def targets(kind: str, points: list[dict[str, Any]], found: Spread | None) -> list[Target]:
    """Return the claims: time linear above cache sizes, memory a fixed number of vectors."""
    last = points[-1]
    straight = None if found is None else abs(found.middle - 1) <= SLOPE_TOLERANCE
    text = "no sizes above the cache in this run" if found is None else found.text()
    vectors = [point["bytes"] / 8 / (point["n"] + point["m"]) for point in points if point["entries"] >= 1e6]
    return [
        Target(f"{kind}: log-log slope of time above cache sizes", "0.95 to 1.05", text, straight),
        Target(
            f"{kind}: peak memory beyond W and x, at most {last['entries']:.0e} entries",
            f"<= {MOST_VECTORS} vectors, our reading of O(n + m)",
            f"{max(vectors):.1f} vectors",
            max(vectors) <= MOST_VECTORS,
        ),
    ]
