"""Small problems run without kernels, and as they would with them."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines import choice
from support.engine_cases import FAMILIES, families

KINDS = {
    "dense": np.ascontiguousarray, "by columns": np.asfortranarray, "csr": sparse.csr_array, "csc": sparse.csc_array,
}  # fmt: skip
OPTIONS = [{"objective": o, "accelerate": a} for o in ("fm", "elbo") for a in (True, False)]


def compiled(monkeypatch):
    monkeypatch.setattr(choice, "SMALL", 0)


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
