"""Passes over files, relative to reading them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import short
from forestmix.engines.choice import choose_engine
from forestmix.engines.protocol import Spread, Want
from forestmix.latents import GaussianFactors
from forestmix.model import observations
from forestmix.weights.chunks import processors

COLUMNS, ROUNDS = 100, 5
#: Columns of the sparse W, which has ten entries in a row.
WIDE, ENTRIES = 1000, 10
#: Bytes that are read at a time: the fastest of 256 KB to 16 MB here.
BUFFER = 2**20
#: What a pass may take at most, relative to reading.
TARGET = 1.5

Say = Callable[[str], None]


def best(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Return the least seconds of some calls; the first, which compiles, does not count."""
    call()
    return min(clocked(call)[0] for _ in range(rounds))


def clocked(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and what it returned."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def read_files(paths: list[Path], threads: int) -> None:
    """Read files into a buffer for each thread, which has its own part of each."""

    def read(k: int) -> None:
        buffer = memoryview(bytearray(BUFFER))
        for path in paths:
            size = path.stat().st_size
            with open(path, "rb", buffering=0) as file:
                file.seek(size * k // threads)
                left = size * (k + 1) // threads - file.tell()
                while left > 0:
                    left -= file.readinto(buffer[: min(left, BUFFER)])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))


def passes(model: Any, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return calls that evaluate a model, and that make a product with ``W^T W``."""
    engine = choose_engine("compiled", model, 1)
    layer, data = model.layers[0], observations(model, x)
    rows = engine.observe(layer, data)
    q = GaussianFactors(np.zeros((1, layer.n_parents)), np.ones((1, layer.n_parents)))
    kappa = np.ones((1, layer.size))
    return {
        "evaluation": lambda: engine.statistics(layer, rows, q, Want.ALL, Spread.SQUARED),
        "product": lambda: engine.normal_product(layer, kappa, q.sd),
    }


def stream(section: Section, rows: int, say: Say) -> None:
    """Add the time of passes over mapped files relative to reading them, with as many threads."""
    threads = processors()
    title = f"A pass over a file, relative to reading it on {threads} threads"
    table = Table(title, ["W, rows, pass", "streamed", "W in memory", "reading, GB/s"])
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, (paths, streamed, held) in files(folder, rows).items():
            size = sum(path.stat().st_size for path in paths)
            for family in (fmx.Gaussian(1.0), fmx.Bernoulli()):
                x = (np.arange(held.shape[0]) % 2).astype(float)
                calls = [passes(fmx.DEF(fmx.Layer(family, source)), x) for source in (streamed, held)]
                for kind in calls[0]:
                    say(f"stream: {label}, {family.name}, {kind}")
                    # Side by side, so that all of them have the same neighbours on the machine.
                    reading, *spent = least_of_turns([
                        lambda paths=paths: read_files(paths, threads), *(one[kind] for one in calls)
                    ])  # fmt: skip
                    cells = [short(one / reading) for one in spent]
                    line = f"{label}, {size / 1e9:.2f} GB, {family.name}, {kind}"
                    table.rows.append([line, *cells, f"{size / reading / 1e9:.1f}"])
                    worst = max(worst, spent[0] / reading if label == "dense" else 0.0)
    section.tables.append(table)
    claim = "a pass over a dense file in the page cache, relative to reading it on as many threads, the slowest"
    section.targets.append(Target(claim, f"<= {TARGET}", short(worst), worst <= TARGET))


def files(folder: Path, rows: int) -> dict[str, tuple[list[Path], Any, Any]]:
    """Write W dense and as CSR; return the files of each, W streamed from them, and W in memory."""
    path = folder / "W.npy"
    W = np.lib.format.open_memmap(path, "w+", np.float64, (rows, COLUMNS))
    block = np.random.default_rng(0).standard_normal((10_000, COLUMNS))
    for start in range(0, rows, len(block)):
        W[start : start + len(block)] = block[: rows - start]
    W.flush()
    rng, count = np.random.default_rng(1), rows * 2
    indices = rng.integers(0, WIDE // ENTRIES, (count, ENTRIES), np.int32) + np.arange(ENTRIES, dtype=np.int32) * (
        WIDE // ENTRIES
    )
    arrays = {"indptr": np.arange(count + 1) * ENTRIES, "indices": indices.ravel()}
    arrays["data"] = rng.standard_normal(indices.size)
    paths = [folder / f"{name}.npy" for name in arrays]
    for one in paths:
        np.save(one, arrays[one.stem])
    matrix = scipy.sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(count, WIDE))
    return {
        "dense": ([path], fmx.ChunkedWeights.open(path), np.array(W)),
        "CSR": (paths[1:], fmx.ChunkedWeights.open_csr(*paths, columns=WIDE), matrix),
    }


def least_of_turns(calls: list[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Return the least seconds of each of some calls that take turns."""
    for call in calls:
        call()
    return np.min([[clocked(call)[0] for call in calls] for _ in range(rounds)], axis=0).tolist()
