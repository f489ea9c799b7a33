"""Small problems run without kernels, and as they would with them."""

import subprocess
import sys

import numpy as np
import pytest
from forestmix.passes import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import forestmix as fmx
from forestmix import small, vectors
from support.engine_cases import FAMILIES, families

KINDS = {
    "dense": np.ascontiguousarray, "by columns": np.asfortranarray, "csr": sparse.csr_array, "csc": sparse.csc_array,
}  # fmt: skip
OPTIONS = [{"objective": o, "accelerate": a} for o in ("fm", "elbo") for a in (True, False)]


def compiled(monkeypatch):
    monkeypatch.setattr(small, "ENTRIES", 0)
    monkeypatch.setattr(small, "LATENTS", 0)


@pytest.mark.parametrize("data", ["single", "missing", "batch with missing"])
@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_the_kernels(family, data, monkeypatch):
    rng = np.random.default_rng(5)
    W, b = 0.5 * rng.standard_normal((12, 4)), 0.3 * rng.standard_normal(12)
    kinds = KINDS.values() if data == "single" else [np.ascontiguousarray]
    models = [fmx.DEF(fmx.Layer(families(12)[family], convert(W), b)) for convert in kinds]
    x = models[0].sample(rng, size=3 if data.startswith("batch") else None).x
    if data != "single":
        x[..., ::5] = np.nan
    runs = [(model, options) for model in models for options in OPTIONS]
    got = [fmx.infer(model, x, tol=1e-7, **options) for model, options in runs]
    bounds = [(one.elbo, one.fm_bound) for one in got]
    compiled(monkeypatch)
    for (model, options), one, both in zip(runs, got, bounds, strict=True):
        right = fmx.infer(model, x, tol=1e-7, **options)
        np.testing.assert_allclose(one.objective, right.objective, rtol=1e-8)
        np.testing.assert_allclose(one.mean, right.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.sd, right.sd, rtol=1e-5)
        np.testing.assert_allclose(both, (right.elbo, right.fm_bound), rtol=1e-6)


def test_single_precision_in_and_out():
    rng = np.random.default_rng(6)
    for family in families(8).values():
        model = fmx.DEF(fmx.Layer(family, rng.standard_normal((8, 3)).astype(np.float32)))
        result = fmx.infer(model, model.sample(rng).x)
        assert result.mean.dtype == result.sd.dtype == np.float32
        assert result.status is fmx.Status.CONVERGED


@pytest.mark.parametrize(("rows", "shape", "options"), [
    ("Gaussian(sd=1.0)", (50, 20), "algorithm='fm'"),
    ("Gaussian(sd=1.0)", (50, 20), "objective='fm', accelerate=False"),
    ("Bernoulli()", (500, 10), "algorithm='fm'"),
    ("Bernoulli()", (500, 10), "objective='fm', accelerate=False"),
    ("Poisson()", (500, 10), "algorithm='fm'"),
])  # fmt: skip
def test_nothing_is_compiled(rows, shape, options):
    """Numba is not even there."""
    code = f"""
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import numpy as np, forestmix as fmx
rng = np.random.default_rng(0)
model = fmx.DEF(fmx.Layer(fmx.{rows}, 0.3 * rng.standard_normal({shape})))
result = fmx.infer(model, model.sample(rng).x, {options})
print(result.elbo >= result.fm_bound)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "True", output.stderr


def arguments(rng, count, m, dtype):
    """Return named vectors of a batch."""
    batch = {name: rng.standard_normal((count, m)).astype(dtype) for name in ("mean", "gradient", "direction", "rows")}
    positive = {name: (0.1 + rng.random((count, m))).astype(dtype) for name in ("sd", "information", "curvature")}
    own = {"precision": (0.1 + rng.random(m)).astype(dtype), "prior_mean": rng.standard_normal(m).astype(dtype)}
    sums, reach = rng.standard_normal((2, count, m + 3)).astype(dtype), np.array([[0, m], [m // 2, m]])
    length = rng.standard_normal(count).astype(dtype)
    return {**batch, **positive, **own, "length": length, "parts": Parts(sums, reach)}


CALLS = {
    "prior_slope": lambda a: vectors.prior_slope(a["mean"], a["prior_mean"], a["precision"], a["rows"]),
    "spread_divergence": lambda a: (vectors.spread_divergence(a["sd"], a["precision"].astype(np.float64)),),
    "spreads": lambda a: (vectors.spreads(a["precision"], a["information"], a["sd"], 1e-6),),
    "step": lambda a: vectors.step(
        a["precision"], a["curvature"], a["information"], a["gradient"], a["mean"], a["sd"], 1e-6
    ),
    "advance": lambda a: (vectors.advance(a["mean"], a["length"], a["direction"], a["gradient"]), a["mean"]),
    "turn": lambda a: (
        *vectors.turn(a["length"], a["gradient"], a["sd"], a["precision"], a["direction"]), a["direction"],
    ),
    "move": lambda a: vectors.move(
        a["length"], a["direction"], a["parts"], a["precision"], a["sd"], a["mean"], a["gradient"]
    ),
    "add_image": lambda a: vectors.add_image(a["parts"], a["direction"], a["precision"]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3), m=st.integers(1, 700))
def test_vectors_are_those_of_the_kernels(name, dtype, seed, count, m):
    got = CALLS[name](arguments(np.random.default_rng(seed), count, m, dtype))
    with pytest.MonkeyPatch.context() as patch:
        compiled(patch)
        right = CALLS[name](arguments(np.random.default_rng(seed), count, m, dtype))
    for one, other in zip(got, right, strict=True):
        assert one.dtype == other.dtype
        scale = 1e-12 if dtype == np.float64 else 2e-5
        np.testing.assert_allclose(one, other, rtol=scale, atol=scale * (1 + np.abs(other).max()))


def test_spreads_that_stay_are_the_same_array():
    precision, information = np.array([1.0, 2.0]), np.array([[3.0, 2.0]])
    old = np.array([[0.5, 0.5]])
    assert vectors.spreads(precision, information, old, 1e-15) is old
    assert vectors.spreads(precision, information + 1, old, 1e-15) is not old
    assert vectors.step(precision, information, information, old, old, old, 1e-15)[1] is old


def test_an_improper_prior_leaves_the_entropy():
    sd = np.array([[0.3, 2.0]])
    got = vectors.spread_divergence(sd, np.array([0.0, 4.0]))
    assert got == pytest.approx(-1 - np.log(2 * np.pi * 0.09) + 16 - 1 - np.log(16))
