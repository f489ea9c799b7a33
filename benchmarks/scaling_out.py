"""Files larger than memory, and clusters: what they cost beside one machine with W in memory.

``python -m benchmarks.scaling_out [rows]`` prints four tables; the default size takes less than a minute.

- stream: one evaluation and one product of a memory-mapped W, relative to reading its file;
- overhead: a product with ``W^T W`` on a cluster of processes over TCP, by the number of chunks, where W is so small
  that nothing else counts, beside one round trip of an empty task;
- workers: seconds per conjugate gradient step where W is large, on 1 and 2 workers of one thread each;
- checkpoint: seconds to write one, by the number of latents.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import forestmix as fmx
from forestmix.engines.choice import choose_engine
from forestmix.engines.protocol import Spread, Want
from forestmix.inference.checkpoint import _write
from forestmix.latents import GaussianFactors
from forestmix.model import observations

COLUMNS = 100
ROUNDS = 10


def best(call, rounds=ROUNDS):
    """Return the least seconds of some calls; the first, which compiles, does not count."""
    call()
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return min(spent)


def read_file(path, size=2**24):
    """Read a file into a buffer."""
    buffer = bytearray(size)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def passes(model, x):
    """Return calls that evaluate a model, and that make a product with ``W^T W``."""
    engine = choose_engine("compiled", model, 1)
    layer, data = model.layers[0], observations(model, x)
    rows = engine.observe(layer, data)
    q = GaussianFactors(np.zeros((1, COLUMNS)), np.ones((1, COLUMNS)))
    kappa = np.ones((1, layer.size))
    return {
        "evaluation": lambda: engine.statistics(layer, rows, q, Want.ALL, Spread.SQUARED),
        "product": lambda: engine.normal_product(layer, kappa, q.sd),
    }


def stream(rows):
    """Print the time of passes over a memory-mapped file relative to reading it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "W.npy"
        W = np.lib.format.open_memmap(path, "w+", np.float64, (rows, COLUMNS))
        for start in range(0, rows, 10_000):
            W[start : start + 10_000] = np.random.default_rng(start).standard_normal(W[start : start + 10_000].shape)
        W.flush()
        x = (np.arange(rows) % 2).astype(float)
        reading = best(lambda: read_file(path))
        print(f"\nstream: {W.nbytes / 1e9:.2f} GB, read in {reading:.3f} s, {W.nbytes / reading / 1e9:.1f} GB/s")
        print(f"{'rows':10}{'pass':14}{'streamed / read':>18}{'in memory / read':>18}")
        held = np.array(W)
        for family in (fmx.Gaussian(1.0), fmx.Bernoulli()):
            streamed = passes(fmx.DEF(fmx.Layer(family, fmx.ChunkedWeights.open(path))), x)
            whole = passes(fmx.DEF(fmx.Layer(family, held)), x)
            for name in streamed:
                ratios = [best(calls[name]) / reading for calls in (streamed, whole)]
                print(f"{family.name:10}{name:14}{ratios[0]:18.2f}{ratios[1]:18.2f}")


def product_call(W):
    """Return a call that makes a product with ``W^T K W``, K being with the chunks already, as in a step."""
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
    engine, layer = choose_engine("auto", model, 1), model.layers[0]
    q = GaussianFactors(np.zeros((1, COLUMNS)), np.ones((1, COLUMNS)))
    rows = engine.observe(layer, observations(model, np.ones(layer.size)))
    kappa = engine.statistics(layer, rows, q, Want.VALUE, Spread.NONE)[1].kappa
    return lambda: engine.normal_product(layer, kappa, q.sd)


def seconds_per_step(W, x, steps=20):
    """Return the seconds of a conjugate gradient step."""
    model, seen = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W)), []
    options = {"accelerate": "cg", "tol": 0, "max_iter": steps, "engine": "compiled"}
    fmx.infer(model, x, **options, callback=lambda _: seen.append(time.perf_counter()))
    return float(np.median(np.diff(seen)[3:]))


def clusters(rows):
    """Print the overhead of a step on a cluster, and what a second worker gains."""
    import dask.array
    import distributed

    for workers in (1, 2):
        options = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        options["env"] = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            generator = dask.array.random.default_rng(0)
            trip = best(lambda client=client: client.submit(int, pure=False).result(), 20)
            for chunks in (2, 8, 32):
                W = generator.standard_normal((chunks * 4, COLUMNS), chunks=(4, COLUMNS))
                spent = best(product_call(W), 20)
                print(
                    f"overhead: {workers} workers, {chunks:3} chunks: {1e3 * spent:6.1f} ms, a trip {1e3 * trip:.1f} ms"
                )
            each = -(-rows // 4)
            W = generator.standard_normal((4 * each, COLUMNS), chunks=(each, COLUMNS))
            spent = seconds_per_step(W, np.ones(4 * each), steps=12)
            print(f"workers: {workers}, {8e-9 * 4 * each * COLUMNS:.2f} GB in 4 chunks: {1e3 * spent:7.1f} ms a step")


def checkpoints():
    """Print the seconds that a checkpoint takes."""
    with tempfile.TemporaryDirectory() as folder:
        for latents in (10_000, 1_000_000):
            state = {"pairs": [np.ones((1, latents)) for _ in range(12)]}
            spent = best(lambda state=state: _write(Path(folder) / "run.npz", state))
            print(f"checkpoint: 12 vectors of {latents} latents: {1e3 * spent:.0f} ms")


def main(rows=500_000):
    stream(rows)
    clusters(rows)
    checkpoints()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
