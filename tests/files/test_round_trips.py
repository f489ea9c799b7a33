"""What was saved and loaded is what it was, bit for bit, and does what it did."""

import json

import numpy as np
import pytest

import forestmix as fmx
from forestmix.errors import ArgumentError
from forestmix.files.codec import Reader, Writer
from forestmix.files.models import CODECS, built_generator, generator_fields
from forestmix.posterior import kinds
from support.saved_objects import DEPTHS, KNOWN, SPARSE, UNKNOWN, W, data, flat, known_scales, same


@pytest.fixture
def again(tmp_path):
    """Save an object, load it, and save the loaded one to see that nothing is lost on the way."""

    def round_trip(obj):
        obj.save(tmp_path / "a.nc")
        loaded = fmx.load(tmp_path / "a.nc")
        assert type(loaded) is type(obj)
        loaded.save(tmp_path / "b.nc")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nc", "b.nc"]
        return loaded

    return round_trip


def test_weights_in_chunks_are_refused_with_what_to_do(tmp_path):
    result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), [np.eye(3), np.eye(3)])), np.ones(6))
    for obj in (result, result.model, result.posterior()):
        for weights in ("inside", "reference"):
            with pytest.raises(fmx.ForestmixError, match=r"A file cannot hold W in chunks.*to_xarray"):
                obj.save(tmp_path / "a.nc", weights=weights)
    result.to_xarray().to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    assert [path.name for path in tmp_path.iterdir()] == ["b.nc"]


@pytest.mark.parametrize("name", [*KNOWN, *UNKNOWN])
def test_models(name, again):
    model = {**KNOWN, **UNKNOWN}[name]()
    loaded = again(model)
    assert repr(loaded) == repr(model)
    for mine, its in zip(model.layers, loaded.layers, strict=True):
        assert type(mine.weights) is type(its.weights)
        assert same(mine.weights.toarray(), its.weights.toarray())
        assert same(mine.bias, its.bias)
    first, second = (known_scales(one).sample(7, 3) for one in (model, loaded))
    assert same(first.x, second.x)
    assert all(same(*pair) for pair in zip(first.latents, second.latents, strict=True))
    assert len(loaded.unknown_scales) == len(model.unknown_scales)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("size", [None, 3], ids=["one", "batch"])
def test_results(name, size, again):
    model = KNOWN[name]()
    result = fmx.infer(model, data(model, size))
    loaded = again(result)
    for mine, its in zip(result.layers, loaded.layers, strict=True):
        assert same(mine.mean, its.mean)
        assert same(mine.sd, its.sd)
        assert same(mine.sample(1, 4), its.sample(1, 4))
    for field in ("iteration", "step", "sweeps", "objective", "gradient_norm", "seconds"):
        assert same(getattr(result.trace, field), getattr(loaded.trace, field))
    for field in ("objective", "n_iter", "converged", "elbo"):
        assert same(getattr(result, field), getattr(loaded, field))
        assert type(getattr(result, field)) is type(getattr(loaded, field))
    assert np.array_equal(result.status, loaded.status)
    assert (repr(result), result.message) == (repr(loaded), loaded.message)
    again_from = fmx.infer(loaded.model, data(model, size), init=loaded)
    assert same(again_from.objective, fmx.infer(model, data(model, size), init=result).objective)


def same_posteriors(first, second):
    assert repr(first) == repr(second)
    for mine, its in zip(first.layers, second.layers, strict=True):
        assert same(mine.mean, its.mean)
        assert same(mine.sd, its.sd)
        assert all(same(*pair) for pair in zip(mine.interval(0.8), its.interval(0.8), strict=True))
    drawn, again = first.sample(6, rng=1), second.sample(6, rng=1)
    drawn, again = (one if isinstance(one, tuple) else (one,) for one in (drawn, again))
    assert all(same(*pair) for pair in zip(drawn, again, strict=True))
    mine, its = first.predict(level=0.7), second.predict(level=0.7)
    assert all(same(getattr(mine, name), getattr(its, name)) for name in ("mean", "lower", "upper", "eta_sd"))
    for name in ("log_evidence", "elbo"):
        assert same(getattr(first, name), getattr(second, name)) or getattr(first, name) is None
    assert list(first.scales) == list(second.scales)
    for name in first.scales:
        assert repr(first.scales[name]) == repr(second.scales[name])
        assert same(first.scales[name].sample(5, 0), second.scales[name].sample(5, 0))


def has_gaussian_latents(model):
    return all(isinstance(family, fmx.Gaussian) for family in model.latent_families)


#: Latents of other families have the factorised kind alone.
KINDS = [(name, kind) for name in KNOWN for kind in ("corrected", "factorised")
         if kind == "factorised" or has_gaussian_latents(KNOWN[name]())]  # fmt: skip


@pytest.mark.parametrize("size", [None, 3], ids=["one", "batch"])
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_posteriors(name, kind, size, again):
    model = KNOWN[name]()
    posterior = fmx.infer(model, data(model, size)).posterior(kind)
    loaded = again(posterior)
    same_posteriors(posterior, loaded)
    if kind == "corrected":
        assert same(posterior.loo().pointwise, loaded.loo().pointwise)
        if size is None:
            assert str(posterior.check()) == str(loaded.check())
            assert name in {f"depth: {one}" for one in DEPTHS} or str(posterior.summary()) == str(loaded.summary())


@pytest.mark.parametrize(
    "name", ["rows: gaussian", "rows: poisson", "rows: mixed", "weights: sparse", "weights: float32"]
)
@pytest.mark.parametrize("size", [None, 2], ids=["one", "batch"])
def test_full_covariances(name, size, again):
    model = KNOWN[name]()
    result = fmx.infer(model, data(model, size), covariance="full")
    same_posteriors(result.posterior(), again(result).posterior())
    same_posteriors(result.posterior(), again(result.posterior()))
    if size is None:
        assert str(result.posterior().check()) == str(again(result).posterior().check())


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_scales(name, again):
    model = UNKNOWN[name]()
    result = fmx.infer(model, data(model))
    loaded = again(result)
    assert loaded.note == result.note
    same_posteriors(result.posterior(), loaded.posterior())
    posterior = again(result.posterior())
    same_posteriors(result.posterior(), posterior)
    assert same(result.posterior().loo().pointwise, posterior.loo().pointwise)
    # Each component has a number for each unknown, by the same object that the posterior has.
    scales = {one.scale for one in posterior.scales.values()}
    assert all(set(part.scales) == scales for part in posterior.mixture.components)


def test_draws_behind_variances_go_on_where_they_were(again, monkeypatch):
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 2)
    monkeypatch.setattr(kinds, "ROW_FACTOR_LIMIT", 2)
    model = flat(fmx.Poisson(), weights=SPARSE)
    posterior = fmx.infer(model, data(model)).posterior(tol=0.2)
    fresh = again(posterior)
    assert posterior.sd_error is not None
    assert same(posterior.sd, fresh.sd)
    loaded = again(posterior)
    assert same(loaded.sd_error, posterior.sd_error)
    rows = np.random.default_rng(0).normal(size=(300, 5))
    assert same(posterior.variance(rows), loaded.variance(rows))


def test_more_latents_than_rows(again, monkeypatch):
    monkeypatch.setattr(kinds, "FACTOR_LIMIT", 2)
    model = flat(fmx.Poisson(), weights=SPARSE)
    posterior = fmx.infer(model, data(model)).posterior()
    assert type(posterior.mixture.components[0].covariance.distinct[0]).__name__ == "RowFactoredCovariance"
    same_posteriors(posterior, again(posterior))


def test_the_same_unknown_stays_the_same(again):
    model = again(UNKNOWN["one scale twice"]())
    assert len(model.unknown_scales) == 1
    first, second = fmx.scales.HalfNormal(1.0), fmx.scales.HalfNormal(1.0)
    assert len(again(flat(fmx.Gaussian(first), fmx.Prior(fmx.Gaussian(second)))).unknown_scales) == 2


@pytest.mark.parametrize("W", [W, np.asfortranarray(W), SPARSE, W.astype(np.float32)], ids=["C", "F", "sparse", "32"])
def test_weights_by_reference(W, tmp_path):
    model = flat(fmx.Poisson(), weights=W)
    posterior = fmx.infer(model, data(model)).posterior()
    posterior.save(tmp_path / "p.nc", weights="reference")
    posterior.save(tmp_path / "whole.nc")
    assert (tmp_path / "p.nc").stat().st_size < (tmp_path / "whole.nc").stat().st_size
    same_posteriors(posterior, fmx.load(tmp_path / "p.nc", weights=W))
    with pytest.raises(ArgumentError, match="weights must be given: the file refers to weights W of 14 x 5"):
        fmx.load(tmp_path / "p.nc")
    with pytest.raises(ArgumentError, match="weights must be those that the file was saved with, 14 x 5"):
        fmx.load(tmp_path / "p.nc", weights=W * 1.5)


def test_weights_of_a_deep_model_by_reference(tmp_path):
    model = DEPTHS["two layers"]()
    model.save(tmp_path / "m.nc", weights="reference")
    parts = [layer.weights.toarray() for layer in model.layers]
    loaded = fmx.load(tmp_path / "m.nc", weights=parts)
    assert same(loaded.sample(0).x, model.sample(0).x)
    # The order does not matter: each is known by its checksum.
    assert same(fmx.load(tmp_path / "m.nc", weights=parts[::-1]).sample(0).x, model.sample(0).x)


def test_a_file_is_netcdf_that_says_what_it_is(tmp_path):
    import xarray

    model = flat(weights=SPARSE)
    fmx.infer(model, data(model)).save(tmp_path / "r.nc")
    with xarray.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as found:
        assert found.attrs["kind"] == "result"
        assert (found.attrs["format_version"], found.attrs["forestmix_version"]) == (1, fmx.__version__)
        assert all(variable.attrs["long_name"] for variable in found.variables.values())
        assert not [name for name in found.variables if "see docs" in found[name].attrs["long_name"]]
        assert same(found["result.layers.0.factors.mean"].values[0], fmx.load(tmp_path / "r.nc").mean)


def test_case_weights_come_back(tmp_path):
    rng = np.random.default_rng(0)
    weights = np.array([0.0, 1.0, 2.5, 1.0, 0.0, 3.0])
    for family in (fmx.Gaussian(0.5), fmx.Poisson()):
        model = fmx.DEF(fmx.Layer(family, rng.standard_normal((6, 2)), case_weights=weights))
        result = fmx.infer(model, rng.poisson(2.0, 6).astype(float))
        result.save(tmp_path / "weighted.nc")
        again = fmx.load(tmp_path / "weighted.nc")
        np.testing.assert_array_equal(again.model.layers[0].case_weights, weights)
        np.testing.assert_array_equal(again.posterior().sd, result.posterior().sd)


@pytest.mark.parametrize(("kind", "family"), [
    ("case weights of rows", {"kind": "Poisson", "fields": {}}),
    ("case weights of Gaussian rows", {"kind": "Gaussian", "fields": {"sd": {"array": "sd"}}}),
])  # fmt: skip
def test_case_weights_as_older_versions_wrote_them(kind, family):
    """They had a kind of their own for a family with case weights."""
    arrays = {"sd": np.array([0.5, 2.0]), "weight": np.array([1.0, 3.0])}
    forms = {"sd": {"array": "sd", "dtype": "float64"}, "weight": {"array": "weight", "dtype": "float64"}}
    family = {**family, "fields": {name: forms[name] for name in family["fields"]}}
    read = Reader(CODECS, arrays.__getitem__).read(
        {"kind": kind, "fields": {"family": family, "weight": forms["weight"]}}
    )
    assert type(read).__name__ == family["kind"]
    np.testing.assert_array_equal(read.weight, [1.0, 3.0])
    factor = [1.0, 3.0] if family["kind"] == "Poisson" else [4.0, 0.75]
    np.testing.assert_allclose(read.rows(np.ones(2)).factor, factor)


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
@pytest.mark.parametrize("older", [False, True], ids=["now", "older versions"])
def test_generators_go_on_where_they_were(name, older):
    """Older versions wrote whole numbers as texts."""

    def as_texts(value):
        if isinstance(value, dict):
            return {key: as_texts(part) for key, part in value.items()}
        return value if isinstance(value, str | np.ndarray) else f"int {value}"

    rng = np.random.Generator(getattr(np.random, name)(3))
    rng.integers(0, 9, 5, np.int32)
    fields = generator_fields(rng)
    writer = Writer(CODECS)
    tree = json.loads(json.dumps(writer.write(as_texts(fields) if older else fields, "rng")))
    again = built_generator(Reader(CODECS, writer.arrays.__getitem__).read(tree))
    assert same(again.random(4), rng.random(4))
    assert same(again.integers(0, 9, 5, np.int32), rng.integers(0, 9, 5, np.int32))
