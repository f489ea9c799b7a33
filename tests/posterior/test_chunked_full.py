"""Full covariances and unknown scales of a W in chunks of rows: the answers of one matrix."""

import dask
import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.posterior import columns
from forestmix.posterior.columns import Columns
from forestmix.scales import HalfNormal
from forestmix.weights import ChunkedWeights, as_weights

CUTS = [(0, 7), (7, 8), (8, 31), (31, 40)]
RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((40, 4))
LEVELS = RNG.permutation(np.arange(40) % 20)
GROUPS = sparse.csr_array(np.hstack([DENSE[:, :2], np.eye(20)[LEVELS], np.eye(3)[LEVELS % 3]]))


def chunks(W, folder=None):
    return [W[a:b] for a, b in CUTS]


def streamed(W, folder):
    if not sparse.issparse(W):
        np.save(folder / "W.npy", W)
        return ChunkedWeights.open(folder / "W.npy", chunk_bytes=200)
    paths = [folder / f"{name}.npy" for name in ("indptr", "indices", "data")]
    for path in paths:
        np.save(path, getattr(W, path.stem))
    return ChunkedWeights.open_csr(*paths, columns=W.shape[1], chunk_bytes=100)


def delayed(W, folder=None):
    return [dask.delayed(W[a:b]) for a, b in CUTS]


def in_single_precision(W, folder=None):
    return [W[a:b].astype(np.float32) for a, b in CUTS]


@pytest.mark.parametrize("made", [chunks, streamed, delayed])
@pytest.mark.parametrize("W", [DENSE, GROUPS], ids=["dense", "groups"])
@pytest.mark.parametrize("family", [fmx.Gaussian(0.5), fmx.Bernoulli(), fmx.Poisson()], ids=lambda one: one.name)
def test_a_full_covariance(family, W, made, tmp_path):
    x = fmx.DEF(fmx.Layer(family, 0.5 * W)).sample(np.random.default_rng(1)).x
    results = [
        fmx.infer(fmx.DEF(fmx.Layer(family, one)), x, covariance="full") for one in (0.5 * W, made(0.5 * W, tmp_path))
    ]
    right, found = (one.posterior() for one in results)
    np.testing.assert_allclose(found.mean, right.mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance(), right.covariance(), atol=1e-9)
    np.testing.assert_allclose(results[1].objective, results[0].objective, rtol=1e-10)
    np.testing.assert_allclose(found.predict().eta_sd, right.predict().eta_sd, atol=1e-9)
    np.testing.assert_allclose(found.loo().elpd, right.loo().elpd, rtol=1e-8)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_unknown_scales(family):
    tau, noise = HalfNormal(1.0), HalfNormal(2.0)
    rows = fmx.Gaussian(noise) if family == "gaussian" else fmx.Poisson()
    prior = fmx.Prior(fmx.Gaussian([2.0, 2.0, *[tau] * 20, *[0.5] * 3]))
    x = np.random.default_rng(3).poisson(2.0, 40).astype(float)
    right, found = (fmx.infer(fmx.DEF(fmx.Layer(rows, one), prior=prior), x) for one in (GROUPS, chunks(GROUPS)))
    for name, scale in right.scales.items():
        np.testing.assert_allclose([found.scales[name].mean, found.scales[name].sd], [scale.mean, scale.sd], rtol=1e-6)
    np.testing.assert_allclose(found.posterior().mean, right.posterior().mean, atol=1e-6)
    np.testing.assert_allclose(found.posterior().sd, right.posterior().sd, atol=1e-6)


def test_single_precision_is_in_chunks_too(monkeypatch):
    """Their entries pass a map to double precision, and still nothing is put together."""

    def refuse(self, *arguments):
        raise AssertionError("all entries were asked for")

    model = fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), in_single_precision(DENSE)))
    monkeypatch.setattr(ChunkedWeights, "_rows", refuse)
    found = fmx.infer(model, np.ones(40), covariance="full").posterior()
    exact = np.eye(4) + DENSE.T @ DENSE / 0.25
    np.testing.assert_allclose(found.mean, np.linalg.solve(exact, DENSE.sum(axis=0) / 0.25), atol=1e-5)


def test_the_same_columns_are_eliminated(monkeypatch):
    whole, parted = Columns(as_weights(GROUPS)), Columns(as_weights(chunks(GROUPS)))
    np.testing.assert_array_equal(parted.block, whole.block)
    assert len(parted.block) == 20
    kappa = np.random.default_rng(2).random(40)
    for one, other in zip(vars(parted.normal(kappa)).values(), vars(whole.normal(kappa)).values(), strict=True):
        np.testing.assert_allclose(columns.dense(one), columns.dense(other), atol=1e-12)
    monkeypatch.setattr(columns, "MOST_COLUMNS", 4)
    assert not columns.fits_factor(as_weights(chunks(GROUPS)))
    monkeypatch.setattr(columns, "MOST_COLUMNS", 6)
    assert columns.fits_factor(as_weights(chunks(GROUPS)))


def test_curvatures_that_are_multiples_read_the_rows_once():
    reads = []

    class Counted(ChunkedWeights):
        def sum_over_rows(self, function, *rows, shared=()):
            reads.append(function.__name__)
            return super().sum_over_rows(function, *rows, shared=shared)

    parted, kappa = Columns(Counted(as_weights(chunks(DENSE)).chunks)), np.random.default_rng(2).random(40)
    del reads[:]
    first = parted.normal(kappa)
    np.testing.assert_allclose(parted.normal(3.0 * kappa).rest, 3.0 * first.rest, rtol=1e-13)
    assert len(reads) == 1
    np.testing.assert_allclose(parted.normal(kappa**2).rest, DENSE.T @ (kappa[:, None] ** 2 * DENSE), rtol=1e-10)
    assert len(reads) == 2
