"""Sums over vectors of latents: what NumPy gives, and the same to the bit wherever the arrays lie in memory."""

import numpy as np
import pytest

from forestmix.engines.compiled import vectors

#: Fewer than the compiler works on at once, so that arrays can lie closer together than that.
SIZE, PLACES = 16, 100
#: Entries between two arrays: within and beyond what it works on at once.
GAPS = (0, 5, 100)


def prior_slope(mean, prior_mean, precision, rows, slope):
    return [np.sum((mean - prior_mean) ** 2 * precision)]


def turn(gradient, inverse, precision, direction):
    p = gradient * inverse + 0.3 * direction
    return [np.sum(p**2 * precision), np.sum(p * gradient)]


def move(direction, parts, precision, inverse, mean, gradient, new_mean, new_gradient):
    g = gradient - 0.3 * (precision * direction + parts)
    return [np.sum(g**2 * inverse)]


def advance(direction, measure, vector):
    return [np.sum((vector + 0.3 * direction) * measure)]


def add_image(parts, direction, precision, image):
    return [np.sum(direction**2 * precision)]


#: Sums in NumPy, names of the arrays in their order, and whether a length comes before them.
CASES = {
    "prior_slope": (prior_slope, "mean prior_mean precision rows slope", False),
    "turn": (turn, "gradient inverse precision direction", True),
    "move": (move, "direction parts precision inverse mean gradient new_mean new_gradient", True),
    "advance": (advance, "direction measure vector", True),
    "add_image": (add_image, "parts direction precision image", False),
}
#: How many axes of length 1 an array has before that of the latents, where it is not one.
LEADING = {"prior_mean": 0, "precision": 0, "parts": 2}


def placed(arrays, buffer, rng):
    """Return copies in a random order, some of them close together."""
    views, at = {}, int(rng.integers(0, 8))
    for name in rng.permutation(list(arrays)):
        at += int(rng.choice(GAPS))
        views[name] = buffer[at : at + SIZE]
        views[name][:] = arrays[name]
        at += SIZE
    return views


def sums(name, arrays, buffer, count, rng):
    """Return the kernel's sums with the arrays at places of their own."""
    _, names, has_length = CASES[name]
    views = placed(arrays, buffer, rng)
    given = []
    for one in names.split():
        given.append(views[one].reshape((1,) * LEADING.get(one, 1) + (SIZE,)))
        if one == "parts":
            given.append(np.array([[0, SIZE]]))  # the latents that the parts are of
    length = [np.array([0.3], buffer.dtype)] if has_length else []
    totals = np.zeros((1, count))
    getattr(vectors, name)(0, SIZE, *length, *given, totals)
    return totals[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_numpy_and_do_not_depend_on_places(name, dtype):
    formula, names, _ = CASES[name]
    buffer = np.empty(len(names.split()) * (SIZE + max(GAPS)) + 8, dtype)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        arrays = {one: rng.standard_normal(SIZE).astype(dtype) for one in names.split()}
        expected = formula(**{one: part.astype(float) for one, part in arrays.items()})
        found = [sums(name, arrays, buffer, len(expected), rng) for _ in range(PLACES)]
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=500 * np.finfo(dtype).eps)
        assert len({totals.tobytes() for totals in found}) == 1
