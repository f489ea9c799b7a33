"""The cost model of docs/scaling.md: its constants from one worker, held against steps on 1 to 4, and carried on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import forestmix as fmx
from benchmarks.harness.results import Section, Table, Target
from benchmarks.harness.rounds import seconds_text, short
from benchmarks.streaming import Say, best
from forestmix.weights.chunks import processors

COLUMNS = 100
WORKERS, CHUNKS = (1, 2, 3, 4), (2, 8, 32)
#: What is assumed on paper: bytes per second of the network, latents, and a bandwidth of other machines.
NETWORK, LATENTS, OTHER = 1e9, 1e5, 1e10


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Yield the client of a cluster of processes over TCP with one thread each."""
    import dask
    import distributed

    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    options["env"] = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"distributed.scheduler.work-stealing": False}
    with dask.config.set(quiet), distributed.LocalCluster(**options) as made, distributed.Client(made) as client:
        yield client


def seconds_per_step(W: Any, x: np.ndarray, steps: int = 40) -> float:
    """Return the seconds of a conjugate gradient step."""
    model, seen = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W)), []
    options = {"accelerate": "cg", "tol": 0, "max_iter": steps, "engine": "compiled"}
    fmx.infer(model, x, **options, callback=lambda _: seen.append(time.perf_counter()))
    return float(np.min(np.diff(seen)[3:]))


@dataclass(frozen=True)
class Costs:
    """The constants of docs/scaling.md: seconds of a step with P workers, K chunks and z entries of float64.

    ``fixed + task K + 8 z / (P bandwidth)``: found from steps on one worker, with W of next to nothing and with a W
    that counts. On a machine with fewer cores than workers the latter divides by the cores.
    """

    fixed: float
    task: float
    bandwidth: float
    cores: int

    def step(self, workers: int, chunks: int, entries: int) -> float:
        """Return the seconds of a step."""
        return self.fixed + self.task * chunks + 8 * entries / (min(workers, self.cores) * self.bandwidth)


def clusters(section: Section, rows: int, say: Say) -> None:
    """Add the overhead of a step on a cluster by chunks and workers, and the cost model beside steps that count."""
    import dask.array

    generator = dask.array.random.default_rng(0)
    small: dict[tuple[int, int], float] = {}
    large, trips, each = {}, {}, -(-rows // 4)
    for workers in WORKERS:
        with cluster(workers) as client:
            say(f"clusters: {workers} workers")
            trips[workers] = best(lambda client=client: client.submit(int, pure=False).result(), 20)
            for chunks in CHUNKS if workers < 3 else ():
                W = generator.standard_normal((chunks * 4, COLUMNS), chunks=(4, COLUMNS))
                small[workers, chunks] = seconds_per_step(W, np.ones(chunks * 4))
            W = generator.standard_normal((4 * each, COLUMNS), chunks=(each, COLUMNS))
            large[workers] = seconds_per_step(W, np.ones(4 * each), steps=40)
    overhead = Table(
        "Overhead: a step where W is next to nothing", ["workers", *map("{} chunks".format, CHUNKS), "trip"]
    )
    for workers in (1, 2):
        spent = [small[workers, chunks] for chunks in CHUNKS]
        overhead.rows.append([str(workers), *map(seconds_text, (*spent, trips[workers]))])
    entries = 4 * each * COLUMNS
    task = max(0.0, (small[1, 32] - small[1, 2]) / 30)
    fixed = max(0.0, small[1, 2] - 2 * task)
    reading = large[1] - fixed - 4 * task
    if reading < large[1] / 2:
        section.notes.append("B was not measured: at this size most of a step is overhead.")
    costs = Costs(fixed, task, 8 * entries / reading if reading > large[1] / 2 else np.nan, processors())
    section.tables += [overhead, constants(costs), validation(section, costs, large, entries)]


def validation(section: Section, costs: Costs, large: dict[int, float], entries: int) -> Table:
    """Return measured steps beside the model; that on one worker has set its bandwidth."""
    title = f"A step with W of {8e-9 * entries:.2f} GB in 4 chunks, and what the model says, on {costs.cores} cores"
    table = Table(title, ["workers", "measured", "model", "measured / model", "efficiency against 1 worker"])
    ratios = []
    for workers, spent in large.items():
        ratios.append(spent / costs.step(workers, 4, entries))
        share = large[1] / (spent * min(workers, costs.cores))
        model = seconds_text(costs.step(workers, 4, entries))
        table.rows.append([str(workers), seconds_text(spent), model, short(ratios[-1]), short(share)])
    measured = ", ".join(map(short, ratios[1:]))
    met = all(0.7 <= ratio <= 1.4 for ratio in ratios)
    claim = "steps on 2, 3 and 4 local workers relative to the cost model"
    section.targets.append(Target(claim, "0.7 to 1.4", measured, met))
    return table


def constants(costs: Costs, entries: float = 1e12, workers: int = 1000) -> Table:
    """Return the constants, and what they say of 1e12 entries on 1,000 workers, one chunk each."""
    table = Table("Constants of the cost model, and 1e12 entries on paper", ["constant", "value"])
    table.rows = [
        ["L, a step however small", seconds_text(costs.fixed)], ["T, each chunk", seconds_text(costs.task)],
        ["B, bytes of W per second and worker", f"{costs.bandwidth / 1e9:.2f} GB/s"],
    ]  # fmt: skip
    vectors = 16 * LATENTS * (np.log(workers) / np.log(8) + 1) / NETWORK
    scheduling = costs.fixed + costs.task * workers
    for name, bandwidth in (("as measured", costs.bandwidth), (f"{OTHER / 1e9:.0f} GB/s", OTHER)):
        reading = 8 * entries / (workers * bandwidth)
        parts = (
            f"{seconds_text(reading)} reading, {seconds_text(vectors)} vectors, {seconds_text(scheduling)} scheduling"
        )
        label = (
            f"{entries:.0e} entries on {workers} workers, B {name}, m = {LATENTS:.0e}, network {NETWORK / 1e9:.0f} GB/s"
        )
        table.rows.append([label, f"{seconds_text(reading + vectors + scheduling)}: {parts}"])
    return table
