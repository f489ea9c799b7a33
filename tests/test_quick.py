"""What must work in every environment, whatever versions it has: run by itself with the lowest ones, see Makefile.

Needs pytest and nothing else beside the package.
"""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx

W = np.random.default_rng(0).standard_normal((12, 4))
ROWS = [fmx.Gaussian(sd=0.5), fmx.Bernoulli(), fmx.Binomial(3), fmx.Poisson()]
LATENTS = [fmx.Gaussian(), fmx.Laplace(1.0), fmx.Exponential(1.0), fmx.SpikeSlab(0.3), fmx.Bernoulli(), fmx.Poisson()]


def test_public_names_exist():
    for name in fmx.__all__:
        assert getattr(fmx, name) is not None
    assert fmx.__version__


@pytest.mark.parametrize("words", [["--help"], ["reproduce", "--help"], ["data", "list"]], ids=" ".join)
def test_the_command_line_starts(words, tmp_path, monkeypatch):
    monkeypatch.setenv("FORESTMIX_DATA", str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", "from forestmix.cli import main; main()", *words], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "demo" in ran.stdout or "mnist" in ran.stdout or "fig2a" in ran.stdout


@pytest.mark.parametrize("family", ROWS, ids=str)
def test_every_family_of_rows(family):
    for weights in (W, sparse.csr_array(W)):
        model = fmx.DEF(fmx.Layer(family, weights))
        assert fmx.infer(model, model.sample(rng=0).x).converged


@pytest.mark.parametrize("family", LATENTS, ids=str)
def test_every_family_of_latents(family):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W), prior=fmx.Prior(family))
    assert fmx.infer(model, model.sample(rng=0).x).converged


def test_a_deep_model():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), 0.3 * W), fmx.Layer(fmx.Gaussian(1.0), W[:4, :2]))
    assert fmx.infer(model, model.sample(rng=0).x).converged


def test_a_forest_with_the_libraries_that_it_may_use():
    base, networkx = pytest.importorskip("sklearn.base"), pytest.importorskip("networkx")
    x = np.random.default_rng(0).standard_normal((50, 6))
    forest = base.clone(fmx.ForestMixtureModel(n_trees=2, random_state=0)).fit(x)
    assert forest.transform(x).shape == (50, 2)
    assert isinstance(forest.to_networkx(), networkx.Graph)
