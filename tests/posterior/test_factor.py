"""The covariance with eliminated columns against dense linear algebra."""

import numpy as np
import pytest
import scipy.sparse

from forestmix.errors import ArgumentError, ForestmixError
from forestmix.posterior import columns as module
from forestmix.posterior.columns import Columns, disjoint_columns
from forestmix.posterior.factor import BlockFactor
from forestmix.posterior.remainder import Remainder
from forestmix.weights import as_weights, blocks


def random_intercepts(rng, n=900, groups=200, fixed=3, crossed=0):
    """Fixed effects, one-hot columns with values of either sign, and a second group that crosses the first."""
    parts = [scipy.sparse.csr_array(rng.standard_normal((n, fixed)))]
    for count in (crossed, groups):
        if count:
            level, value = rng.integers(0, count, n), rng.standard_normal(n) + 2
            parts.append(scipy.sparse.csr_array((value, (np.arange(n), level)), (n, count)))
    return scipy.sparse.csr_array(scipy.sparse.hstack(parts))


CASES = {
    "dense": lambda rng: rng.standard_normal((40, 7)),
    "fewer rows than columns": lambda rng: rng.standard_normal((4, 9)),
    "random intercepts": random_intercepts,
    "crossed": lambda rng: random_intercepts(rng, n=600, groups=120, crossed=25),
    "one-hot alone": lambda rng: random_intercepts(rng, n=50, groups=10, fixed=0),
    "unrelated sparse": lambda rng: scipy.sparse.random_array((80, 30), density=0.1, rng=rng, format="csr"),
}


@pytest.fixture(params=[(name, small) for name in CASES for small in (False, True)], ids=str)
def case(request, monkeypatch):
    """Also with arrays that stay sparse, as those of large matrices do."""
    rng = np.random.default_rng(1)
    name, small = request.param
    monkeypatch.setattr(module, "SMALL", np.inf if small else 0)
    W = CASES[name](rng)
    n, m = W.shape
    kappa, precision = rng.uniform(0, 2, n) * (rng.random(n) > 0.1), rng.uniform(0.1, 3, m)
    dense = W.toarray() if scipy.sparse.issparse(W) else W
    sigma = np.linalg.inv(np.diag(precision) + (dense.T * kappa) @ dense)
    return BlockFactor(Columns(as_weights(W)), kappa, precision), sigma, dense, rng


def test_all_of_a_covariance(case):
    factor, sigma, W, rng = case
    m = len(sigma)
    right, C = rng.standard_normal((3, m)), rng.standard_normal((5, m))
    np.testing.assert_allclose(factor.solve(right), right @ sigma, atol=1e-11)
    np.testing.assert_allclose(factor.solve(right[0]), sigma @ right[0], atol=1e-11)
    np.testing.assert_allclose(factor.variance(), np.diag(sigma), rtol=1e-10)
    np.testing.assert_allclose(factor.covariance(), sigma, atol=1e-11)
    np.testing.assert_allclose(factor.covariance(C), C @ sigma @ C.T, atol=1e-10)
    np.testing.assert_allclose(factor.row_variances(), np.einsum("ij,jk,ik->i", W, sigma, W), rtol=1e-9, atol=1e-12)
    assert factor.log_determinant() == pytest.approx(np.linalg.slogdet(sigma)[1], abs=1e-9)


def test_wider_covariances(case):
    """Variances of the independent coordinates are put in: of the block's own, and a matrix of the others'."""
    factor, sigma, W, rng = case
    block, rest = len(factor.columns.block), len(factor.columns.rest)
    root = rng.standard_normal((rest, rest)) / 9
    remainder = Remainder(0.5, 1 + rng.random(block), np.eye(rest) + root @ root.T)
    wider = factor.widened(remainder)
    coordinates = factor.row_coordinates(rest=True)
    # The rows in coordinates give their covariance, before and after.
    each = np.zeros((len(W), block))
    own = np.flatnonzero(coordinates.column >= 0)
    each[own, coordinates.column[own]] = coordinates.block[own]
    np.testing.assert_allclose(each @ each.T + coordinates.rest.T @ coordinates.rest, W @ sigma @ W.T, atol=1e-9)
    expected = (each * remainder.block) @ each.T + coordinates.rest.T @ remainder.rest @ coordinates.rest
    np.testing.assert_allclose(wider.covariance(W), expected, atol=1e-9)
    np.testing.assert_allclose(wider.row_variances(), np.diag(expected), atol=1e-9)
    np.testing.assert_allclose(wider.released().covariance(W), expected, atol=1e-9)
    np.testing.assert_allclose(wider.unwidened().covariance(), sigma, atol=1e-11)
    y = rng.standard_normal((3, len(sigma)))
    whole = np.linalg.inv(wider.covariance())
    np.testing.assert_allclose(wider.squared_distance(y), np.einsum("sj,jk,sk->s", y, whole, y), rtol=1e-7)
    assert wider.left_out() == 0.5
    assert factor.left_out() == 0.0


def test_without_its_factor_it_is_the_same(case):
    factor, sigma, _, _ = case
    again = factor.released()
    np.testing.assert_array_equal(again.variance(), factor.variance())
    np.testing.assert_array_equal(again.sample(3, rng=1), factor.sample(3, rng=1))
    assert again.log_determinant() == factor.log_determinant()
    assert factor.nbytes <= 8 * sigma.size


def test_functionals_of_any_kind(case):
    factor, sigma, _, rng = case
    C = rng.standard_normal((5, len(sigma))) * (rng.random((5, len(sigma))) < 0.4)
    expected = np.einsum("ij,jk,ik->i", C, sigma, C)
    for given in (C, scipy.sparse.csr_array(C), scipy.sparse.coo_array(C), as_weights(C)):
        np.testing.assert_allclose(factor.quadratic(given), expected, rtol=1e-9, atol=1e-12)
    assert factor.quadratic(C[0]) == pytest.approx(expected[0])
    with pytest.raises(ArgumentError, match="C must have shape"):
        factor.quadratic(C[:, 1:])


def test_draws_have_the_covariance(case):
    factor, sigma, _, _ = case
    drawn = factor.sample(20_000, rng=0)
    whitened = drawn @ np.linalg.inv(np.linalg.cholesky(sigma)).T
    off = whitened.T @ whitened / len(drawn) - np.eye(len(sigma))
    # Entries have standard errors of 1 / sqrt(20,000), on the diagonal sqrt(2) times that.
    assert np.max(np.abs(off)) < 6 / np.sqrt(20_000)


def test_groups_are_found():
    rng = np.random.default_rng(0)
    columns = Columns(as_weights(random_intercepts(rng, crossed=20)))
    np.testing.assert_array_equal(columns.block, np.arange(23, 223))
    assert len(Columns(as_weights(rng.standard_normal((30, 4)))).block) == 0


def test_chosen_columns_share_no_row():
    W = scipy.sparse.random_array((200, 60), density=0.03, rng=np.random.default_rng(2), format="csc")
    chosen = disjoint_columns(W)
    assert len(chosen) > 10
    assert np.max(np.sum(W[:, chosen].toarray() != 0, axis=1)) == 1


def test_blocks_of_rows_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    W = random_intercepts(rng)
    columns = Columns(as_weights(W))
    factor = BlockFactor(columns, np.ones(W.shape[0]), np.ones(W.shape[1]))
    whole = factor.row_variances(), factor.variance()
    monkeypatch.setattr(blocks, "MEMORY_BUDGET", 1000)
    np.testing.assert_allclose(factor.row_variances(), whole[0], rtol=1e-13)
    np.testing.assert_allclose(factor.variance(), whole[1], rtol=1e-13)


def test_too_many_columns_and_no_factor(monkeypatch):
    columns = Columns(as_weights(np.ones((5, 3))))
    with pytest.raises(ForestmixError, match="not positive definite in double precision"):
        BlockFactor(columns, np.full(5, 1e20), np.full(3, 1e-20))
    monkeypatch.setattr(module, "MOST_COLUMNS", 2)
    with pytest.raises(ArgumentError, match=r"at most 2 latents for a full covariance, .* got 3 besides 0"):
        Columns(as_weights(np.ones((5, 3))))
