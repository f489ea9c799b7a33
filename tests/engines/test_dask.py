"""Chunks on a cluster of processes that talk over TCP: the answers of one machine, also when a worker is killed."""

import itertools
import os
import signal

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.weights import as_weights, dask_chunks
from forestmix.weights.chunks import MemoryChunks, StreamedChunks
from forestmix.weights.dask_chunks import ClusterChunks
from support.engine_cases import families

pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
import dask.array  # noqa: E402

FAMILIES = ("gaussian", "bernoulli", "binomial", "poisson", "mixed")
N, M, CUTS = 40, 5, (0, 9, 10, 24, 40)

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "protocol": "tcp://"}
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),  # as docs/scaling.md advises
        distributed.LocalCluster(**options, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def problem(family, seed=1, n=N):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, M)) * (rng.random((n, M)) < 0.7) / 2
    model = fmx.DEF(fmx.Layer(families(n)[family], W, 0.2))
    return model, W, model.sample(rng).x


def delayed_chunks(W, cuts=CUTS):
    """Return sparse chunks that only Dask has: it makes them by a call."""
    return [dask.delayed(sparse.csr_array)(W[a:b]) for a, b in itertools.pairwise(cuts)]


def in_dask(W, storage):
    return dask.array.from_array(W, chunks=(11, 3)) if storage == "dense" else delayed_chunks(W)


def same(found, right):
    assert found.converged
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.objective, right.objective, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_answers_of_a_cluster_are_those_of_one_machine(client, storage, family):
    model, W, x = problem(family)
    with client.as_current():
        weights = as_weights(in_dask(W, storage))
        assert isinstance(weights.chunks, ClusterChunks)
        found = fmx.infer(fmx.DEF(fmx.Layer(model.layers[0].family, weights, 0.2)), x, tol=1e-12)
    same(found, fmx.infer(model, x, tol=1e-12))


@pytest.mark.parametrize("options", [{"accelerate": "cg"}, {"objective": "fm"}, {"accelerate": False}], ids=str)
def test_other_steps_on_a_cluster(client, options):
    model, W, x = problem("gaussian")
    with client.as_current():
        parted = fmx.DEF(fmx.Layer(model.layers[0].family, in_dask(W, "sparse"), 0.2))
        found = fmx.infer(parted, x, tol=1e-12, **options)
    same(found, fmx.infer(model, x, tol=1e-12, **options))


def test_a_worker_that_is_killed_costs_a_retry(client):
    model, W, x = problem("poisson")
    killed = []

    def kill(seen):
        if seen.iteration == 3 and not killed:
            holding = {worker for workers in client.who_has().values() for worker in workers}
            processes = client.run(os.getpid, workers=[sorted(holding)[0]])
            killed.extend(processes.values())
            os.kill(killed[0], signal.SIGKILL)

    with client.as_current():
        parted = fmx.DEF(fmx.Layer(model.layers[0].family, in_dask(W, "sparse"), 0.2))
        found = fmx.infer(parted, x, tol=1e-12, callback=kill)
    assert killed
    same(found, fmx.infer(model, x, tol=1e-12))


def test_entries_of_w_stay_with_their_workers(client):
    """What one iteration sends is some vectors of latents: far less than W, and nothing of the length of the rows."""
    n, m = 200_000, 10
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n)
    with client.as_current():
        W = dask.array.random.default_rng(1).standard_normal((n, m), chunks=(50_000, m))
        layer = fmx.Layer(fmx.Gaussian(0.5), W)
        sent = []
        gather = client.gather

        def counted(method):
            def call(function, *arguments, **options):
                sent.extend(part.nbytes for part in _arrays(arguments))
                return method(function, *arguments, **options)

            return call

        def fetched(futures, *rest, **options):
            found = gather(futures, *rest, **options)
            sent.extend(part.nbytes for part in _arrays(found))
            return found

        client.submit, client.map, client.gather = counted(client.submit), counted(client.map), fetched
        try:
            before = []
            fmx.infer(fmx.DEF(layer), x, accelerate="cg", tol=1e-10, callback=lambda seen: before.append(len(sent)))
        finally:
            del client.submit, client.map, client.gather
        moved = {key for log in client.run(_moved_between_workers).values() for key in log}
        assert moved.isdisjoint(future.key for future in layer.weights.chunks.futures)
    assert len(before) > 5
    assert max(sent[before[1] : before[-1]]) <= 8 * m


def _moved_between_workers(dask_worker):
    return [key for transfer in dask_worker.transfer_incoming_log for key in transfer["keys"]]


def _arrays(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_with_no_client_threads_of_this_machine_serve(storage, monkeypatch):
    model, W, x = problem("bernoulli")
    right = fmx.infer(model, x, tol=1e-12)
    for part, kind in ((0.25, MemoryChunks), (0.0, StreamedChunks)):
        monkeypatch.setattr(dask_chunks, "KEPT_PART", part)
        weights = as_weights(in_dask(W, storage))
        assert isinstance(weights.chunks, kind)
        same(fmx.infer(fmx.DEF(fmx.Layer(model.layers[0].family, weights, 0.2)), x, tol=1e-12), right)


def test_lists_of_both_kinds_are_refused():
    with pytest.raises(ArgumentError, match="chunks of W must be all of Dask or none"):
        as_weights([np.ones((2, 2)), dask.delayed(np.ones)((2, 2))])


def test_wrong_entries_on_a_worker_are_named(client):
    W = np.ones((4, 2))
    W[3, 1] = np.inf
    with client.as_current(), pytest.raises(ArgumentError, match="W must be finite"):
        as_weights(dask.array.from_array(W, chunks=(2, 2)))


def test_nothing_piles_up_in_the_scheduler(client):
    """Tasks and their data are released once an iteration is over."""
    model, W, x = problem("gaussian")
    counts = []

    def count(dask_scheduler):
        return len(dask_scheduler.tasks)

    with client.as_current():
        parted = fmx.DEF(fmx.Layer(model.layers[0].family, in_dask(W, "dense"), 0.2))
        options = {"accelerate": False, "tol": 0, "max_iter": 40}
        fmx.infer(parted, x, **options, callback=lambda seen: counts.append(client.run_on_scheduler(count)))
    assert max(counts[20:]) <= max(counts[:20])


def test_observations_and_posterior_of_a_cluster(client):
    """The data may be Dask's too; what is asked of the result afterwards is asked of the workers."""
    model, W, x = problem("bernoulli")
    right = fmx.infer(model, x, tol=1e-12).posterior()
    with client.as_current():
        parted = fmx.DEF(fmx.Layer(model.layers[0].family, in_dask(W, "sparse"), 0.2))
        posterior = fmx.infer(parted, dask.array.from_array(x, chunks=10), tol=1e-12).posterior()
        np.testing.assert_allclose(posterior.sd, right.sd, atol=1e-9)
        np.testing.assert_allclose(posterior.predict().mean, right.predict().mean, atol=1e-9)
        np.testing.assert_allclose(posterior.loo().elpd, right.loo().elpd, atol=1e-8)
