"""Loops that are written in LLVM's own vectors, against NumPy: every length, both precisions, any alignment."""

import numpy as np
import pytest
from forestmix.engines.compiled.gathers import gather_three, gather_two, scatter_three, scatter_two
from forestmix.engines.compiled.lines import adder, dotter
from forestmix.engines.compiled.nodes import LANES, march
from forestmix.engines.compiled.terms import absolute_product, absolute_value, itself, square, squared_product
from numba import njit

TERMS = [(itself, lambda w, v: w * v), (absolute_value, lambda w, v: abs(w) * v), (square, lambda w, v: w**2 * v)]
PRODUCTS = [TERMS[0], (absolute_product, lambda w, v: abs(w * v)), (squared_product, lambda w, v: (w * v) ** 2)]
#: Around the width of a vector and of a line in either precision, and several of them with a rest.
LENGTHS = [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 67, 511, 513, 1027, 2050]
PRECISIONS = pytest.mark.parametrize("dtype", [np.float64, np.float32])

KINDS = {"terms": TERMS, "products": PRODUCTS, "one": TERMS[:1]}


def adding(terms):
    """Return a compiled function that adds rows to sums."""
    intrinsic = adder(*(term for term, _ in terms))
    return njit(lambda rows, ahead, factors, sums: intrinsic(rows, ahead, factors, sums))


def dotting(terms):
    """Return a compiled function that multiplies rows with vectors."""
    intrinsic = dotter(*(term for term, _ in terms))
    return njit(lambda rows, ahead, vectors, products: intrinsic(rows, ahead, vectors, products))


ADD = {kind: adding(terms) for kind, terms in KINDS.items()}
DOT = {kind: dotting(terms) for kind, terms in KINDS.items()}


def unaligned(rng, length, dtype):
    """Return numbers that begin in the middle of a vector."""
    return rng.standard_normal(length + 3).astype(dtype)[3:]


@PRECISIONS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_rows_are_added_to_sums(count, kind, dtype):
    terms, unit = KINDS[kind], np.finfo(dtype).eps
    for length in LENGTHS:
        rng = np.random.default_rng(length)
        rows = tuple(unaligned(rng, length, dtype) for _ in range(count))
        factors = rng.standard_normal((len(terms), count)).astype(dtype)
        held = rng.standard_normal((len(terms), length + 2)).astype(dtype)
        sums = held.copy()
        ADD[kind](rows, (5, length), tuple(factors), tuple(row[1:-1] for row in sums))
        for s, (_, term) in enumerate(terms):
            added = [term(row.astype(float), float(factor)) for row, factor in zip(rows, factors[s], strict=True)]
            expected = held[s, 1:-1] + np.sum(added, axis=0)
            np.testing.assert_allclose(sums[s, 1:-1], expected, rtol=50 * unit, atol=20 * unit)
        np.testing.assert_array_equal(sums[:, [0, -1]], held[:, [0, -1]], "what lies beside the sums was written to")


@PRECISIONS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 4, 8])
def test_rows_are_multiplied_with_vectors(count, kind, dtype):
    terms, unit = KINDS[kind], np.finfo(dtype).eps
    for length in LENGTHS:
        rng = np.random.default_rng(length)
        rows = tuple(unaligned(rng, length, dtype) for _ in range(count))
        vectors = tuple(rng.standard_normal((len(terms), length)).astype(dtype))
        added = [term(row.astype(float), v) for v, (_, term) in zip(vectors, terms, strict=True) for row in rows]
        for ahead in ((), (length // 2,)):
            found = np.full((len(terms), count), np.nan, dtype)
            DOT[kind](rows, ahead, vectors, tuple(found))
            for got, one in zip(found.ravel(), added, strict=True):
                assert abs(got - one.sum()) <= 10 * unit * (1 + np.abs(one).sum())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_nan_and_infinity_are_seen(kind, bad):
    count = len(KINDS[kind])
    rows = np.ones(9), np.ones(9), np.ones(9)
    rows[0][4] = bad
    sums, products = np.zeros((count, 9)), np.zeros((count, 3))
    ADD[kind](rows, (), tuple(np.ones((count, 3))), tuple(sums))
    assert not np.isfinite(sums[:, 4]).any()
    assert np.isfinite(np.delete(sums, 4, axis=1)).all()
    DOT[kind](rows, (), tuple(np.ones((count, 9))), tuple(products))
    assert np.isfinite(products).tolist() == [[False, True, True]] * count


def test_rows_with_gaps_are_refused():
    with pytest.raises(TypeError, match="contiguous"):
        DOT["one"]((np.ones(8)[::2],), (), (np.ones(4),), (np.ones(1),))


@njit
def gather(columns, values, first, last, pairs):
    two = gather_two(columns, values, first, last, pairs)
    return two, gather_three(columns, values, first, last, pairs)


@njit
def scatter(columns, values, first, last, factors, two, three):
    scatter_two(columns, values, first, last, factors[0], factors[1], two)
    scatter_three(columns, values, first, last, factors[0], factors[1], factors[2], three)


@PRECISIONS
@pytest.mark.parametrize("index", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", range(10))
def test_entries_of_a_sparse_row(count, index, dtype):
    rng = np.random.default_rng(count)
    latents, first = 20, 3
    columns = np.sort(rng.choice(latents, count + 5, replace=False)).astype(index)
    values = rng.standard_normal(count + 5).astype(dtype)
    row = np.zeros(latents)
    row[columns[first : first + count]] = values[first : first + count]
    mean, sd = rng.standard_normal(latents).astype(dtype), rng.random(latents).astype(dtype)
    pairs = np.stack([mean, sd], axis=1).ravel()
    tolerance = {"rtol": 100 * np.finfo(dtype).eps, "atol": 10 * np.finfo(dtype).eps}
    two, three = gather(columns, values, first, first + count, pairs)
    expected = [row @ mean, abs(row) @ sd, row**2 @ sd.astype(float) ** 2]
    np.testing.assert_allclose(two, expected[:2], **tolerance)
    np.testing.assert_allclose(three, expected, **tolerance)

    factors = rng.standard_normal(3).astype(dtype)
    of_two, of_three = (rng.standard_normal((latents, width)).astype(dtype) for width in (2, 4))
    added = np.stack([row * factors[0], abs(row) * factors[1], row**2 * factors[2], 0 * row], axis=1)
    held = of_two.copy(), of_three.copy()
    scatter(columns, values, first, first + count, factors, of_two.reshape(-1), of_three.reshape(-1))
    np.testing.assert_allclose(of_two, held[0] + added[:, :2], **tolerance)
    np.testing.assert_allclose(of_three, held[1] + added, **tolerance)
    untouched = np.setdiff1d(np.arange(latents), columns[first : first + count])
    np.testing.assert_array_equal(of_three[untouched], held[1][untouched])


MARCH = njit(lambda tables, places, steps, weights: march(*tables, *places, steps, *weights))


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
@pytest.mark.parametrize(("offset", "width"), [(0.0, 3.0), (2.5, 1.0), (-4.0, 9.0), (30.0, 8.0)])
def test_nodes_are_added_up_with_normal_weights(offset, width, steps):
    """Node k is k away from the one between the two sides, and that is ``offset`` away from the mean."""
    rng = np.random.default_rng(steps)
    size, up, down = 60, 3, 41
    tables = rng.standard_normal((3, size + LANES))
    tables[:, size:] = 0

    def density(k):
        return np.exp(-0.5 * ((offset + k) / width) ** 2)

    weight, bend = density(0), np.exp(-1 / width**2)
    found = MARCH(
        tuple(tables), (up, down, size), steps, (weight, density(1) / weight, density(-1) / weight, bend)
    )  # fmt: skip
    padded = np.pad(tables, ((0, 0), (0, LANES * steps)))
    k = np.arange(LANES * steps)
    upwards, downwards = padded[:, up + k] * density(k + 1), padded[:, down + k] * density(-k - 1)
    downwards[1] *= -1
    sizes = (np.abs(upwards) + np.abs(downwards)).sum(axis=1)
    np.testing.assert_array_less(np.abs(found - (upwards + downwards).sum(axis=1)), 1e-13 * sizes + 1e-300)
