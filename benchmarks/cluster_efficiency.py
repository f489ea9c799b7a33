"""What an iteration costs on a cluster besides computing, and what a second worker gains where computing is all.

A part of ``python -m benchmarks scaling_out``.

- overhead: an evaluation and a product of next to nothing, by the grid of chunks, on two workers: seconds, and CPU time
  of client and scheduler together;
- efficiency: an evaluation of Bernoulli rows, for which arithmetic counts more than memory, in the same two chunks on
  one worker and on two. Each has one thread. Both clusters are there at once and take turns, so that both meet the same
  machine; the least of the rounds counts.
"""

import contextlib
import time

import numpy as np

import forestmix as fmx
from benchmarks.harness.results import Table, Target
from benchmarks.harness.rounds import seconds_text
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


def overhead(section):
    """Add what calls on chunks of next to nothing take."""
    import dask.array

    columns = ["chunks", "a trip", "evaluation", "product", "CPU of client and scheduler"]
    table = Table("Overhead by the grid of chunks, two workers", columns)
    with cluster(2) as client:
        trip = least([lambda: client.submit(int, pure=False).result()])[0]
        for rows, columns in GRIDS:
            W = dask.array.ones((4 * rows, 4 * columns), chunks=(4, 4))
            calls = evaluation(client, W, fmx.Bernoulli())
            spent = least(calls)
            cpu = ", ".join(seconds_text(cpu_of(call)) for call in calls)
            table.rows.append([f"{rows} x {columns}", *map(seconds_text, (trip, *spent)), cpu])
    section.tables.append(table)


def efficiency(section, rows):
    """Add how much faster two workers are than one."""
    import dask.array

    with cluster(1) as one, cluster(2) as two:
        W = dask.array.random.default_rng(0).standard_normal((rows, COLUMNS), chunks=(-(-rows // 2), COLUMNS))
        spent = least([evaluation(client, W, fmx.Bernoulli(), "compiled")[0] for client in (one, two)])
    share = spent[0] / (2 * spent[1])
    claim = (
        f"efficiency of two workers against one: {rows} x {COLUMNS} Bernoulli rows in 2 chunks, "
        f"{seconds_text(spent[0])} and {seconds_text(spent[1])}"
    )
    section.targets.append(Target(claim, ">= 0.8", f"{share:.2f}", share >= 0.8))


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


def add(section, rows, say):
    """Add both."""
    say("overhead on two workers")
    overhead(section)
    say("efficiency of two workers")
    efficiency(section, rows)
