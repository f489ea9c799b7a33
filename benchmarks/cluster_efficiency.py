"""What an iteration costs on a cluster besides computing, and what a second worker gains where computing is all.

``python -m benchmarks scaling_out`` runs it after its own tables; alone it is ``python -m
benchmarks.cluster_efficiency [rows]``.

- overhead: an evaluation and a product of next to nothing, by the grid of chunks, on two workers: seconds, and CPU time
  of client and scheduler together;
- efficiency: an evaluation of Bernoulli rows, for which arithmetic counts more than memory, in the same two chunks on
  one worker and on two. Each has one thread. Both clusters are there at once and take turns, so that both meet the same
  machine; the least of the rounds counts.
"""

import contextlib
import sys
import time

import numpy as np

import forestmix as fmx
from forestmix.engines.choice import choose_engine
from forestmix.engines.protocol import Spread, Want
from forestmix.latents import GaussianFactors
from forestmix.model import observations

COLUMNS = 8
ROUNDS = 10
GRIDS = ((1, 1), (2, 1), (8, 1), (1, 2), (2, 2))
ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def cluster(workers):
    """Give a client of so many workers of one thread each."""
    import distributed

    options = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options, env=ONE_THREAD, protocol="tcp://") as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


def evaluation(client, W, family, engine="auto"):
    """Return calls that evaluate a model whose W is with the workers of a client, and make a product."""
    with client.as_current():
        model = fmx.DEF(fmx.Layer(family, W))
        layer, m = model.layers[0], model.n_latent
        chosen = choose_engine(engine, model, 1)
        rows = chosen.observe(layer, observations(model, np.arange(layer.size) % 2.0))
    q = GaussianFactors(np.zeros((1, m)), np.full((1, m), 0.1))

    def evaluate():
        return chosen.statistics(layer, rows, q, Want.ALL, Spread.SQUARED)

    kappa = evaluate()[1].kappa
    return evaluate, lambda: chosen.normal_product(layer, kappa, q.sd)


def overhead():
    """Print what calls on chunks of next to nothing take."""
    import dask.array

    print(f"\n{'overhead, two workers':24}{'a trip':>10}{'evaluation':>12}{'product':>10}   ms; CPU of both here")
    with cluster(2) as client:
        trip = least([lambda: client.submit(int, pure=False).result()])[0]
        for rows, columns in GRIDS:
            W = dask.array.ones((4 * rows, 4 * columns), chunks=(4, 4))
            calls = evaluation(client, W, fmx.Bernoulli())
            spent = least(calls)
            cpu = [cpu_of(call) for call in calls]
            label = f"{rows} x {columns} chunks"
            times = f"{1e3 * trip:10.1f}{1e3 * spent[0]:12.1f}{1e3 * spent[1]:10.1f}"
            print(f"{label:24}{times}   {1e3 * cpu[0]:.1f}, {1e3 * cpu[1]:.1f}")


def efficiency(rows=8_000_000):
    """Print how much faster two workers are than one."""
    import dask.array

    with cluster(1) as one, cluster(2) as two:
        W = dask.array.random.default_rng(0).standard_normal((rows, COLUMNS), chunks=(-(-rows // 2), COLUMNS))
        spent = least([evaluation(client, W, fmx.Bernoulli(), "compiled")[0] for client in (one, two)])
    share = spent[0] / (2 * spent[1])
    print(
        f"\nefficiency: {rows} x {COLUMNS} Bernoulli rows in 2 chunks: one worker {spent[0]:.3f} s, "
        f"two {spent[1]:.3f} s, efficiency {share:.2f} (target 0.8)"
    )


def least(calls, rounds=ROUNDS):
    """Return the least seconds of each call, one after another in every round."""
    spent = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, seconds in zip(calls, spent, strict=True):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
    return [min(seconds[1:]) for seconds in spent]


def cpu_of(call, rounds=ROUNDS):
    """Return the CPU seconds that this process, in which client and scheduler are, takes for a call."""
    began = time.process_time()
    for _ in range(rounds):
        call()
    return (time.process_time() - began) / rounds


def main(rows=200_000):
    overhead()
    efficiency(40 * rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
