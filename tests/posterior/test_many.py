"""Many observations in a Dask array: each chunk ends as it would in memory, and nothing is gathered on the way."""

import dask
import dask.array
import numpy as np
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.inference.status import Status
from forestmix.posterior import many_chunks, many_scales

RNG = np.random.default_rng(2)
W = RNG.standard_normal((12, 4)) / 3
DEEP = RNG.standard_normal((4, 2))
MODELS = {
    "gaussian": fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W)),
    "poisson": fmx.DEF(fmx.Layer(fmx.Poisson(), W)),
    "binary": fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), W), prior=fmx.Prior(fmx.Bernoulli())),
    "deep": fmx.DEF(fmx.Layer(fmx.Bernoulli(), W), fmx.Layer(fmx.Gaussian(1.0), DEEP)),
}


def batch(name, size=23, missing=False):
    x = MODELS[name].sample(np.random.default_rng(1), size=size).x
    if missing:
        x[3, 2] = x[11, 5] = np.nan
    return x, dask.array.from_array(x, chunks=(7, 5))


@pytest.mark.parametrize("name", MODELS)
def test_chunks_end_as_they_do_in_memory(name):
    x, parted = batch(name, missing=name == "poisson")
    right, found = (fmx.infer(MODELS[name], one, tol=1e-10) for one in (x, parted))
    for one, other in zip(found.layers, right.layers, strict=True):
        mean, sd = dask.compute(one.mean, one.sd)
        np.testing.assert_allclose(mean, other.mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(sd, other.sd, rtol=0, atol=1e-8)
    objective, status, converged, n_iter = dask.compute(found.objective, found.status, found.converged, found.n_iter)
    np.testing.assert_allclose(objective, right.objective, rtol=1e-9)
    assert list(status) == list(right.status)
    assert converged.all()
    assert n_iter.shape == (23,)
    assert found.message.startswith("23 of 23 observations: Converged")
    assert repr(found).startswith("<MappedResult of 23 observations in 4 chunks")


def test_the_posterior_of_each_chunk():
    x, parted = batch("poisson")
    right = fmx.infer(MODELS["poisson"], x, tol=1e-10).posterior()
    found = fmx.infer(MODELS["poisson"], parted, tol=1e-10).posterior()
    low, high = found.interval(0.5)
    pairs = [
        (found.mean, right.mean),
        (found.sd, right.sd),
        (low, right.interval(0.5)[0]),
        (high, right.interval(0.5)[1]),
    ]
    for got, expected in pairs:
        np.testing.assert_allclose(got.compute(), expected, rtol=0, atol=1e-7)


def test_predictions_and_what_else_a_posterior_gives():
    x, parted = batch("poisson")
    right = fmx.infer(MODELS["poisson"], x, tol=1e-10).posterior()
    found = fmx.infer(MODELS["poisson"], parted, tol=1e-10).posterior()
    rows = np.array([0, 4, 7])
    predicted = found.map(lambda one: one.predict(rows).mean, shape=(3,))
    left_out = found.map(lambda one: one.loo().pointwise.reshape(-1, 12), shape=(12,))
    draws = found.map(lambda one: np.moveaxis(one.sample(50, rng=0), 0, 1), shape=(50, 4))
    predicted, left_out, draws = dask.compute(predicted, left_out, draws)
    np.testing.assert_allclose(predicted, right.predict(rows).mean, rtol=1e-6)
    np.testing.assert_allclose(left_out, right.loo().pointwise.reshape(23, 12), rtol=1e-6)
    assert draws.shape == (23, 50, 4)


def test_unknown_scales_of_each_observation():
    x, parted = batch("gaussian", size=5)
    parted = parted.rechunk((3, 12))
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(fmx.scales.HalfNormal(1.0)), W))
    right, found = (fmx.infer(model, one, scales="each") for one in (x, parted))
    (name, own), = found.scales.items()  # fmt: skip
    pairs = [
        (found.mean, right.mean),
        (found.posterior().sd, right.posterior().sd),
        (own.mean, [one.mean for one in right.scales[name]]),
        (own.sd, [one.sd for one in right.scales[name]]),
    ]
    for got, expected in zip(dask.compute(*(got for got, _ in pairs)), (right for _, right in pairs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


SCALE = fmx.scales.HalfNormal(1.0)
SHARED = {
    "noise": (fmx.DEF(fmx.Layer(fmx.Gaussian(), W)), "gaussian"),
    "noise and prior": (
        fmx.DEF(fmx.Layer(fmx.Gaussian(SCALE), W), prior=fmx.Prior(fmx.Gaussian(fmx.scales.HalfNormal(2.0)))),
        "gaussian",
    ),
    "weights": (fmx.DEF(fmx.Layer(fmx.Gaussian(), W, case_weights=np.arange(12.0))), "gaussian"),
    "prior of counts": (fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=fmx.Prior(fmx.Gaussian(SCALE))), "poisson"),
    "more than are integrated over": (
        fmx.DEF(fmx.Layer(fmx.Gaussian([fmx.scales.HalfNormal(1.0 + k) for k in range(7)] + [0.5] * 5), W)),
        "gaussian",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_unknown_scales_that_all_observations_share(name):
    model, drawn = SHARED[name]
    x, parted = batch(drawn, missing=True)
    right, found = (fmx.infer(model, one) for one in (x, parted))
    posterior, expected = found.posterior(), right.posterior()
    predicted = posterior.map(lambda one: one.predict([0, 4]).mean, shape=(2,))
    pairs = [
        (found.mean, right.mean),
        (posterior.sd, expected.sd),
        (posterior.interval(0.5)[1], expected.interval(0.5)[1]),
        (found.objective, right.objective),
        (predicted, expected.predict([0, 4]).mean),
    ]
    for got, answer in zip(dask.compute(*(got for got, _ in pairs)), (right for _, right in pairs), strict=True):
        np.testing.assert_allclose(got, answer, rtol=1e-8, atol=1e-8)
    assert list(found.status.compute()) == list(right.status)
    assert list(found.scales) == list(right.scales)
    for own, one in right.scales.items():
        np.testing.assert_allclose(found.scales[own].interval(0.9), one.interval(0.9), rtol=1e-8)
        assert found.persist().scales[own].mean == pytest.approx(one.mean, rel=1e-8)
    assert found.model.unknown_scales == ()


def test_shared_scales_of_observations_larger_than_memory_are_read_in_every_pass(monkeypatch):
    model, (x, parted) = SHARED["noise"][0], batch("gaussian")
    monkeypatch.setattr(many_scales, "memory_of_machine", lambda: 0)
    found = fmx.infer(model, parted)
    np.testing.assert_allclose(found.mean.compute(), fmx.infer(model, x).mean, rtol=1e-8)


def test_ctrl_c_leaves_the_best_shared_scales_so_far(monkeypatch):
    model, (_, parted) = SHARED["noise"][0], batch("gaussian")
    counts, over_observations = [0], many_scales.MappedScales.over_observations

    def interrupted(self, theta, *, whole):
        counts[0] += 1
        if counts[0] == 4:
            raise KeyboardInterrupt
        return over_observations(self, theta, whole=whole)

    monkeypatch.setattr(many_scales.MappedScales, "over_observations", interrupted)
    found = fmx.infer(model, parted)
    assert set(found.status.compute()) == {Status.STOPPED}
    assert found.scales["noise"].sd == 0
    assert np.isfinite(found.mean.compute()).all()


def test_nothing_runs_until_it_is_asked_for_and_each_chunk_once(monkeypatch):
    runs = []
    loop = fmx.inference.loop.Run.loop

    def counted(self, *arguments):
        runs.append(self.problem.n_observations)
        return loop(self, *arguments)

    monkeypatch.setattr(fmx.inference.loop.Run, "loop", counted)
    found = fmx.infer(MODELS["gaussian"], batch("gaussian")[1])
    assert runs == []
    kept = found.persist()
    dask.compute(kept.mean, kept.sd, kept.status)
    kept.objective.compute()
    assert sorted(runs) == [2, 7, 7, 7]


def test_chunks_of_unknown_sizes():
    x, parted = batch("gaussian")
    unknown = parted[parted[:, 0] > -np.inf]
    assert np.isnan(unknown.shape[0])
    found = fmx.infer(MODELS["gaussian"], unknown)
    np.testing.assert_allclose(found.mean.compute(), fmx.infer(MODELS["gaussian"], x).mean, atol=1e-8)


def test_what_goes_with_data_in_memory_is_refused():
    model, (x, parted) = MODELS["gaussian"], batch("gaussian")
    unknown = fmx.DEF(fmx.Layer(fmx.Gaussian(), W))
    deep = fmx.DEF(fmx.Layer(fmx.Gaussian(), W), fmx.Layer(fmx.Gaussian(1.0), DEEP))
    for arguments, options, message in (
        ((model, parted[:, :5]), {}, r"x must have shape \(N, 12\)"),
        ((unknown, parted), {"algorithm": "cavi"}, "algorithm and init must be left out"),
        ((deep, parted), {}, "model must have one layer and a Gaussian prior"),
        ((model, parted), {"init": (x, x)}, "init must be None"),
        ((model, parted), {"callback": print}, "callback must be None"),
        ((model, parted), {"checkpoint": "run.npz"}, "checkpoint must be None"),
        ((model, x), {"out": "folder.zarr"}, r"out must be None but for x in a Dask array \(N, n\)"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fmx.infer(*arguments, **options)
    with pytest.raises(ForestmixError, match=r"Use layers\[k\].mean"):
        fmx.infer(MODELS["deep"], batch("deep")[1]).mean  # noqa: B018


@pytest.mark.parametrize("name", MODELS)
def test_weights_in_chunks_take_chunks_of_observations_in_turns(name, monkeypatch):
    x, parted = batch(name, missing=name == "poisson")
    sizes, check = [], many_chunks.observations
    monkeypatch.setattr(many_chunks, "observations", lambda model, part: sizes.append(len(part)) or check(model, part))
    right, found = (fmx.infer(model, one, tol=1e-10) for model, one in ((MODELS[name], x), (in_chunks(name), parted)))
    for one, other in zip(found.layers, right.layers, strict=True):
        np.testing.assert_allclose(one.mean.compute(), other.mean, rtol=0, atol=1e-7)
        np.testing.assert_allclose(one.sd.compute(), other.sd, rtol=0, atol=1e-7)
        assert one.mean.chunks[0] == (7, 7, 7, 2)
    assert list(found.status.compute()) == list(right.status)
    assert found.message.startswith("23 of 23 observations: Converged")
    assert found.persist() is found
    if name == "binary":
        return
    posterior, expected = found.posterior(), right.posterior()
    assert sizes == [7, 7, 7, 2]  # x is read again by chunks, and never whole
    for k, layer in enumerate(expected.layers):
        np.testing.assert_allclose(posterior.layers[k].sd.compute(), layer.sd, atol=1e-7)
        np.testing.assert_allclose(posterior.interval(0.5, k)[1].compute(), layer.interval(0.5)[1], atol=1e-7)
    if name != "deep":
        rates = posterior.map(lambda one: one.predict([0, 4]).mean, shape=(2,))
        np.testing.assert_allclose(rates.compute(), expected.predict([0, 4]).mean, rtol=1e-6)
    if name == "gaussian":
        left_out = posterior.map(lambda one: one.loo().pointwise, shape=(12,))
        np.testing.assert_allclose(left_out.compute(), expected.loo().pointwise.reshape(23, 12), rtol=1e-6)


def in_chunks(name):
    model = MODELS[name]
    parts = fmx.Layer(model.layers[0].family, [W[:5], W[5:]])
    return fmx.DEF(parts, *model.layers[1:], prior=model.prior)


def test_what_a_whole_batch_is_asked_for_brings_observations_to_memory(tmp_path):
    """A callback sees all observations, a checkpoint has the state of all, and shared scales are of all."""
    x, parted = batch("gaussian")
    chunked, right = in_chunks("gaussian"), fmx.infer(MODELS["gaussian"], x)
    for options in ({"callback": lambda seen: None}, {"checkpoint": tmp_path / "a.npz"}):
        found = fmx.infer(chunked, parted, **options)
        assert isinstance(found, fmx.Result)
        np.testing.assert_allclose(found.mean, right.mean, atol=1e-6)
        with pytest.raises(ArgumentError, match="where W is in chunks too, the scales must be known"):
            fmx.infer(chunked, parted, out=tmp_path / "a.zarr", **options)
    unknown = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(), [W[:5], W[5:]])), parted)
    expected = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(), W)), x)
    assert unknown.scales["noise"].mean == pytest.approx(expected.scales["noise"].mean, rel=1e-8)


@pytest.fixture
def zarr():
    return pytest.importorskip("zarr", reason="needs the extra [zarr]")


def test_results_go_to_zarr(zarr, tmp_path):
    x, parted = batch("deep")
    right = fmx.infer(MODELS["deep"], x, tol=1e-10)
    found = fmx.infer(MODELS["deep"], parted, tol=1e-10, out=tmp_path / "a.zarr")
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")
    for k, layer in enumerate(right.layers):
        np.testing.assert_allclose(group[f"mean_{k}"][:], layer.mean, atol=1e-8)
        np.testing.assert_allclose(found.layers[k].sd.compute(), layer.sd, atol=1e-8)
        assert group[f"mean_{k}"].chunks == (7, layer.mean.shape[1])
    assert list(found.status.compute()) == list(right.status)
    assert [group.attrs["statuses"][code] for code in group["status"][:]] == [one.name for one in right.status]
    fmx.infer(MODELS["deep"], parted).posterior().to_zarr(tmp_path / "b.zarr")
    np.testing.assert_allclose(
        zarr.open_group(str(tmp_path / "b.zarr"))["sd_0"][:], right.posterior().layers[0].sd, atol=1e-4
    )


def test_results_over_weights_in_chunks_go_to_zarr_and_on(zarr, tmp_path, monkeypatch):
    (x, parted), path, chunked = batch("poisson"), tmp_path / "a.zarr", in_chunks("poisson")
    right, runs = fmx.infer(MODELS["poisson"], x, tol=1e-10), []

    def stopping(*given):
        runs.append(1)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return plain(*given)

    plain = many_chunks._inferred
    monkeypatch.setattr(many_chunks, "_inferred", stopping)
    with pytest.raises(KeyboardInterrupt):
        fmx.infer(chunked, parted, tol=1e-10, out=path)
    found = fmx.infer(chunked, parted, tol=1e-10, out=path)
    assert len(runs) == 3 + 2
    np.testing.assert_allclose(found.mean.compute(), right.mean, atol=1e-8)
    np.testing.assert_allclose(found.posterior().sd.compute(), right.posterior().sd, atol=1e-8)
    assert set(found.status.compute()) == {Status.CONVERGED}


def test_a_killed_run_leaves_whole_chunks_and_goes_on(zarr, tmp_path, monkeypatch):
    model, (x, _) = MODELS["gaussian"], batch("gaussian")
    touched = []

    def seen(block, broken):
        if len(block):  # Dask tries a block of nothing to learn the type
            touched.append(float(block[0, 0]))
            if broken and len(touched) == 3:  # whichever Dask takes third
                raise RuntimeError("the power is gone")
        return block

    parted = dask.array.from_array(x, chunks=(7, 12))
    path = tmp_path / "a.zarr"
    with dask.config.set(scheduler="synchronous"), pytest.raises(RuntimeError, match="the power is gone"):
        fmx.infer(model, parted.map_blocks(seen, True, dtype=float), out=path)
    done = zarr.open_group(str(path), mode="r")["status"][:] != 255
    assert 0 < done.sum() < 23
    del touched[:]
    found = fmx.infer(model, parted.map_blocks(seen, False, dtype=float), out=path)
    assert len([one for one in touched if one != 0]) == 4 - done.sum() // 7 - (done.sum() % 7 > 0)
    np.testing.assert_allclose(found.mean.compute(), fmx.infer(model, x).mean, atol=1e-8)
    assert set(found.status.compute()) == {Status.CONVERGED}
    for other, options in ((fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), 2 * W)), {}), (model, {"tol": 1e-3})):
        with pytest.raises(ArgumentError, match="out must be a new folder, or one of the same model"):
            fmx.infer(other, parted, out=path, **options)
    with pytest.raises(ArgumentError, match="same model, options and chunks"):
        fmx.infer(model, parted.rechunk((5, 12)), out=path)
    zarr.open_group(str(tmp_path / "b.zarr"), mode="w").create_array("mean", shape=(2,), dtype="f8")
    with pytest.raises(ArgumentError, match="holds something else"):
        fmx.infer(model, parted, out=tmp_path / "b.zarr")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_of_a_cluster_serve(tmp_path, processes):
    distributed = pytest.importorskip("distributed")
    x, parted = batch("poisson")
    right = fmx.infer(MODELS["poisson"], x, tol=1e-10)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": processes, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        found = fmx.infer(MODELS["poisson"], parted, tol=1e-10).persist()
        mean, sd = dask.compute(found.mean, found.posterior().sd)
        assert any(client.has_what().values())
        zarr = pytest.importorskip("zarr", reason="needs the extra [zarr]")
        fmx.infer(MODELS["poisson"], parted, tol=1e-10, out=tmp_path / "a.zarr")
        written = zarr.open_group(str(tmp_path / "a.zarr"), mode="r")["mean"][:]
        counts, _ = SHARED["prior of counts"]
        shared = fmx.infer(counts, parted, out=tmp_path / "b.zarr")
        at_shared = shared.mean.compute()
    np.testing.assert_allclose(mean, right.mean, atol=1e-8)
    np.testing.assert_allclose(sd, right.posterior().sd, atol=1e-8)
    np.testing.assert_allclose(written, right.mean, atol=1e-8)
    of_counts = fmx.infer(counts, x)
    np.testing.assert_allclose(at_shared, of_counts.mean, atol=1e-8)
    assert shared.scales["sd"].mean == pytest.approx(of_counts.scales["sd"].mean, rel=1e-8)
