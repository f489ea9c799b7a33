"""Files larger than memory, and clusters: what they cost, beside what people use now.

Tables: passes over a file relative to reading it; constants of the cost model of docs/scaling.md, and steps on 1 to 4
local workers beside what it says; logistic regression beside dask-ml and dask-glm, each to the same accuracy; a W of
100,000,000 x 200 that is generated chunk by chunk (``--size large``; other sizes take a part of its rows).
"""

from __future__ import annotations

import resource
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import forestmix as fmx
from benchmarks import cluster_efficiency
from benchmarks.harness.results import Section, Table
from benchmarks.harness.rounds import seconds_text, short
from forestmix.engines.choice import choose_engine
from forestmix.engines.protocol import Spread, Want
from forestmix.inference.checkpoint import _write
from forestmix.latents import GaussianFactors
from forestmix.model import observations
from forestmix.weights import Weights
from forestmix.weights.chunk_files import trusted_dense
from forestmix.weights.chunks import ChunkShape, StreamedChunks

#: size: rows of the file, rows on workers, rows of the regression, rows of the generated W.
SIZES = {
    "small": (20_000, 8_000, 4_000, 200_000),
    "default": (200_000, 200_000, 50_000, 1_000_000),
    "large": (2_000_000, 1_000_000, 1_000_000, 100_000_000),
}
COLUMNS, ROUNDS = 100, 5
#: Latents of the regression, and of the generated W with the rows of a chunk of it.
REGRESSORS, WIDE, EACH = 50, 200, 20_000
#: How far coefficients may be from where a method goes to, in posterior standard deviations.
NEAR = 0.01

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


def read_file(path: Path, size: int = 2**24) -> None:
    """Read a file into a buffer."""
    buffer = bytearray(size)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


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
    """Add the time of passes over a memory-mapped file relative to reading it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "W.npy"
        W = np.lib.format.open_memmap(path, "w+", np.float64, (rows, COLUMNS))
        for start in range(0, rows, 10_000):
            W[start : start + 10_000] = np.random.default_rng(start).standard_normal(W[start : start + 10_000].shape)
        W.flush()
        x = (np.arange(rows) % 2).astype(float)
        held = np.array(W)
        table = Table("A pass over a file, relative to reading it", ["rows, pass", "streamed", "W in memory"])
        readings = []
        for family in (fmx.Gaussian(1.0), fmx.Bernoulli()):
            sources = (fmx.ChunkedWeights.open(path), held)
            calls = [passes(fmx.DEF(fmx.Layer(family, source)), x) for source in sources]
            for name in calls[0]:
                say(f"stream: {family.name}, {name}")
                # Side by side, so that all of them have the same neighbours on the machine.
                reading, *spent = least_of_turns([lambda: read_file(path), *(one[name] for one in calls)])
                readings.append(reading)
                table.rows.append([f"{family.name}, {name}", *(short(one / reading) for one in spent)])
        speed = W.nbytes / min(readings) / 1e9
        table.title += f": {W.nbytes / 1e9:.2f} GB, {speed:.1f} GB/s"
        section.tables.append(table)
        section.series["reading"] = speed


def least_of_turns(calls: list[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Return the least seconds of each of some calls that take turns."""
    for call in calls:
        call()
    return np.min([[clocked(call)[0] for call in calls] for _ in range(rounds)], axis=0).tolist()


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


def seconds_per_step(W: Any, x: np.ndarray, steps: int = 20) -> float:
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
    """Add the overhead of a step on a cluster by chunks and workers, and the cost model beside it."""
    import dask.array

    from forestmix.weights.chunks import processors

    generator = dask.array.random.default_rng(0)
    overhead = Table(
        "Overhead: a step where W is next to nothing", ["workers", "2 chunks", "8 chunks", "32 chunks", "trip"]
    )
    found: dict[tuple[int, int], float] = {}
    large: dict[int, float] = {}
    each = -(-rows // 4)
    for workers in (1, 2, 3, 4):
        with cluster(workers) as client:
            say(f"clusters: {workers} workers")
            trip = best(lambda client=client: client.submit(int, pure=False).result(), 20)
            for chunks in (2, 8, 32) if workers < 3 else ():
                W = generator.standard_normal((chunks * 4, COLUMNS), chunks=(4, COLUMNS))
                found[workers, chunks] = seconds_per_step(W, np.ones(chunks * 4))
            W = generator.standard_normal((4 * each, COLUMNS), chunks=(each, COLUMNS))
            large[workers] = seconds_per_step(W, np.ones(4 * each), steps=12)
        if workers < 3:
            cells = [seconds_text(found[workers, chunks]) for chunks in (2, 8, 32)]
            overhead.rows.append([str(workers), *cells, seconds_text(trip)])
    entries = 4 * each * COLUMNS
    task = max(0.0, (found[1, 32] - found[1, 2]) / 30)
    fixed = max(0.0, found[1, 2] - 2 * task)
    costs = Costs(fixed, task, 8 * entries / max(1e-9, large[1] - fixed - 4 * task), processors())
    title = f"A step with W of {8e-9 * entries:.2f} GB in 4 chunks, and what the model says, on {costs.cores} cores"
    table = Table(title, ["workers", "measured", "model", "measured / model", "efficiency against 1 worker"])
    for workers, spent in large.items():
        model = costs.step(workers, 4, entries)
        share = large[1] / (spent * min(workers, costs.cores))
        table.rows.append([str(workers), seconds_text(spent), seconds_text(model), short(spent / model), short(share)])
    constants = Table("Constants of the cost model", ["constant", "value"])
    constants.rows = [
        ["L, a step however small", seconds_text(fixed)], ["T, each chunk", seconds_text(task)],
        ["B, bytes of W per second and worker", f"{costs.bandwidth / 1e9:.2f} GB/s"],
    ]  # fmt: skip
    on_paper(constants, costs)
    section.tables += [overhead, constants, table]


def on_paper(table: Table, costs: Costs, entries: float = 1e12, workers: int = 1000) -> None:
    """Add what the model says of 1e12 entries on 1,000 workers, one chunk each, with B as measured and at 10 GB/s."""
    for name, bandwidth in (("as measured", costs.bandwidth), ("10 GB/s", 1e10)):
        reading = 8 * entries / (workers * bandwidth)
        trips = costs.fixed + costs.task * workers
        text = f"{seconds_text(reading)} reading, {seconds_text(trips)} scheduling"
        table.rows.append([f"1e12 entries on {workers} workers, B {name}", text])


def beside(section: Section, rows: int, say: Say) -> None:
    """Add logistic regression beside dask-ml and dask-glm: seconds to the same accuracy."""
    try:
        import dask_glm.algorithms
        from dask_ml.linear_model import LogisticRegression
    except ImportError:
        section.notes.append("dask-ml and dask-glm are not installed here: pip install dask-ml dask-glm.")
        return
    import dask.array

    rng = np.random.default_rng(11)
    X = rng.standard_normal((rows, REGRESSORS))
    y = (rng.random(rows) < 1 / (1 + np.exp(-X @ (0.3 * rng.standard_normal(REGRESSORS))))).astype(float)
    parts, answers = (dask.array.from_array(one, chunks=(-(-rows // 4), *one.shape[1:])) for one in (X, y))
    parts, answers = parts.persist(), answers.persist()
    whole = fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), X)), y, tol=1e-10).posterior()
    mode = newton_mode(X, y)
    sd = np.asarray(whole.sd)

    def ours(tol: float) -> np.ndarray:
        return np.asarray(fmx.infer(fmx.DEF(fmx.Layer(fmx.Bernoulli(), parts)), y, tol=tol).posterior().mean)

    def theirs(solver: str) -> Callable[[float], np.ndarray]:
        options = {"solver": solver, "fit_intercept": False, "C": 1.0, "max_iter": 100}
        return lambda tol: LogisticRegression(**options, tol=tol).fit(parts, answers).coef_

    def glm(solver: str) -> Callable[[float], np.ndarray]:
        options = {"regularizer": "l2", "lamduh": 1.0, "max_iter": 100}
        name = "tol" if solver == "lbfgs" else "abstol"
        return lambda tol: getattr(dask_glm.algorithms, solver)(parts, answers, **options, **{name: tol})

    runs = {
        "forestmix, posterior": (ours, whole.mean), "dask-ml, lbfgs": (theirs("lbfgs"), mode),
        "dask-ml, admm": (theirs("admm"), mode), "dask-glm, lbfgs": (glm("lbfgs"), mode),
        "dask-glm, admm": (glm("admm"), mode),
    }  # fmt: skip
    title = f"Logistic regression, {rows} x {REGRESSORS} in 4 chunks on local threads, to {NEAR} posterior sds"
    table = Table(title, ["method", "seconds", "tolerance", "distance in sds", "gives"])
    for name, (run, goal) in runs.items():
        say(f"beside: {name}")
        spent, tol, distance = to_accuracy(run, np.asarray(goal), sd)
        gives = "means, sds, intervals, draws" if "forestmix" in name else "the mode"
        table.rows.append([name, short(spent), f"{tol:g}", short(distance), gives])
    section.tables.append(table)


def newton_mode(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the mode under a N(0, 1) prior of each coefficient, which a penalty of 1 stands for."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ beta))
        step = np.linalg.solve(np.eye(len(beta)) + (X.T * (p * (1 - p))) @ X, X.T @ (y - p) - beta)
        beta = beta + step
        if np.max(np.abs(step)) < 1e-12:
            break
    return beta


def to_accuracy(run: Callable[[float], np.ndarray], goal: np.ndarray, sd: np.ndarray) -> tuple[float, float, float]:
    """Return seconds, tolerance and distance of the loosest tolerance that comes near enough; of the last if none."""
    run(1e-1)  # compile
    spent, tol, distance = 0.0, 0.0, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in (1e-2, 1e-4, 1e-6, 1e-8):
            spent, found = clocked(lambda tol=tol: run(tol))
            distance = float(np.max(np.abs(np.ravel(found) - goal) / sd))
            if distance <= NEAR:
                break
    return spent, tol, distance


@dataclass(frozen=True)
class Generated:
    """Rows of a W that exists nowhere: bytes of a counter-based generator (Philox), keyed by the chunk, as float32."""

    number: int
    rows: int

    @property
    def shape(self) -> ChunkShape:
        """The shape of these rows."""
        return ChunkShape(self.rows, WIDE, np.dtype(np.float32))

    def numbers(self) -> np.ndarray:
        """Return entries between -1 and 1, in steps of 1/128."""
        raw = np.random.Philox(key=self.number).random_raw(self.rows * WIDE // 8)
        return raw.view(np.int8).astype(np.float32).reshape(self.rows, WIDE) * np.float32(1 / 128)

    def load(self, *, trusted: bool) -> Weights:
        """Make the rows."""
        return trusted_dense(self.numbers())


@dataclass(frozen=True)
class GeneratedData:
    """W in chunks, made anew in every pass, with responses."""

    rows: int

    @cached_property
    def chunks(self) -> list[Generated]:
        """The chunks."""
        return [Generated(k, EACH) for k in range(self.rows // EACH)]

    def responses(self) -> np.ndarray:
        """Return responses of all rows that do not depend on W: the coefficients are all 0."""
        return np.random.default_rng(5).integers(0, 2, self.rows, np.int8).astype(np.float32)


def generated(section: Section, rows: int, full: int, say: Say) -> None:
    """Add the time of passes over a logistic regression that is generated by chunks, and memory."""
    rows -= rows % EACH
    data = GeneratedData(rows)
    for call in passes(few(), np.ones(2 * EACH)).values():
        call()  # compile, which takes memory of its own
    before = peak_bytes()
    say(f"generated: responses of {rows} rows")
    x = data.responses()
    some = data.chunks[:: max(1, len(data.chunks) // 50)]
    making = (
        len(data.chunks)
        / len(some)
        * np.array(both_clocks(lambda: deque((chunk.numbers() for chunk in some), maxlen=1)))
    )
    model = fmx.DEF(fmx.Layer(fmx.Bernoulli(), fmx.ChunkedWeights(StreamedChunks(data.chunks))))
    spent = {"generation alone, one thread": making}
    for name, call in passes(model, x).items():
        say(f"generated: {name}")
        spent[f"one {name}, generation and all"] = np.array(both_clocks(call))
    peak = peak_bytes()
    scale = full / rows
    title = f"Logistic rows, {rows} x {WIDE} in float32, generated by chunks of {EACH} rows"
    table = Table(title, ["", "seconds", "CPU seconds", f"for {full} rows: seconds", "CPU seconds"])
    for name, both in spent.items():
        table.rows.append([name, *(short(one) for one in (*both, *(scale * both)))])
    memory = peak - before
    cells = [f"{memory / 1e9:.2f} GB", "", f"{scale * memory / 1e9:.1f} GB", ""]
    table.rows.append(["memory of data and rows", *cells])
    section.tables.append(table)


def few() -> Any:
    """Return the model of two chunks."""
    return fmx.DEF(fmx.Layer(fmx.Bernoulli(), fmx.ChunkedWeights(StreamedChunks(GeneratedData(2 * EACH).chunks))))


def both_clocks(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call, and the CPU seconds of this process."""
    began = time.process_time()
    seconds = clocked(call)[0]
    return seconds, time.process_time() - began


def peak_bytes() -> float:
    """Return the largest memory of this process so far."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
    in_file, on_workers, in_regression, made = SIZES[size]
    with threadpool_limits(1):  # threads of BLAS wait in loops, which other processes on the machine pay for
        generated(section, made, SIZES["large"][3], say)
    show(section)
    for part, rows in ((stream, in_file), (clusters, on_workers), (beside, in_regression)):
        known = len(section.tables)
        part(section, rows, say)
        show(section, known)
    checkpoints(section)
    cluster_efficiency.main(on_workers)
    section.notes.insert(0, "The cost model, its constants and what they mean are in [scaling](scaling.md).")
    return section
