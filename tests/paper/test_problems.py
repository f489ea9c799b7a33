"""The ridge problems are the paper's, and their reference optimum is right."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix import data
from forestmix.paper.problems import (
    Draw,
    RidgeProblem,
    draw_all,
    draw_digits,
    draw_photographs,
    kernel_problem,
    region_problem,
    scale,
    window_problem,
)


@pytest.fixture(scope="module")
def digits():
    return draw_digits(seed=3, count=2)


def dense_optimum(problem):
    """Solve the normal equations of every image."""
    W = problem.model.layers[0].weights.toarray()
    target = problem.draw.x - problem.draw.bias
    A = W.T @ W / problem.sd_x**2 + np.eye(W.shape[1]) / problem.sd_y**2
    mean = np.linalg.solve(A, W.T @ target.T / problem.sd_x**2).T
    residual = target - mean @ W.T
    return (residual**2).sum(1) / (2 * problem.sd_x**2) + (mean**2).sum(1) / (2 * problem.sd_y**2)


def test_digits_are_scaled_and_b_is_the_mean_of_other_digits(digits):
    assert digits.x.shape == (2, 784)
    assert digits.x.min() == -1.0
    assert digits.x.max() <= 1.0
    pool = scale(np.concatenate([data.load_mnist_sample(split).images for split in ("train", "test")]))
    order = np.random.default_rng(3).permutation(len(pool))
    np.testing.assert_allclose(digits.bias, pool[order[:1000]].mean(0).ravel())
    np.testing.assert_array_equal(digits.x, pool[order[1000:1002]].reshape(2, -1))


def test_image_names_lead_back_to_the_image(digits):
    split, place = digits.names[0].split("/")
    sample = data.load_mnist_sample(split)
    image = sample.images[np.flatnonzero(sample.index == int(place))[0]]
    np.testing.assert_array_equal(digits.x[0], scale(image).ravel())


def test_photographs_are_channel_first():
    draw = draw_photographs(seed=0, count=3)
    sample = data.load_cifar10_sample()
    image = sample.images[np.flatnonzero(sample.index == int(draw.names[1].split("/")[1]))[0]]
    np.testing.assert_array_equal(draw.x[1].reshape(3, 32, 32)[2], scale(image)[:, :, 2])
    assert draw.bias == 0.0


def test_another_seed_draws_other_images():
    assert draw_digits(0, 4).names != draw_digits(1, 4).names


def test_no_image_is_drawn_for_two_seeds():
    """Of 40 photographs, seeds 0 to 2 share some when each is drawn by itself."""
    alone = [name for seed in range(3) for name in draw_photographs(seed, 5).names]
    together = [name for draw in draw_all(draw_photographs, range(3), 5, full=False) for name in draw.names]
    assert len(set(alone)) < 15
    assert len(set(together)) == 15
    assert together[:5] == alone[:5]
    with pytest.raises(fmx.ArgumentError, match="at most 10, as many as are left after the 30 of earlier seeds"):
        draw_all(draw_photographs, range(3), 15, full=False)


@pytest.mark.parametrize("draw", [draw_digits, draw_photographs])
def test_more_images_than_there_are_is_an_error(draw):
    with pytest.raises(fmx.ArgumentError, match=r"images must be at most .* --full"):
        draw(0, 1001)


@pytest.mark.parametrize(("side", "latents"), [(1, 784), (3, 900), (7, 1156), (15, 1764)])
def test_window_counts(digits, side, latents):
    assert window_problem(digits, side).n_latent == latents


def test_region_problem_has_2704_latents_in_16_blocks_that_share_no_row(digits):
    problem = region_problem(digits)
    assert problem.model.layers[0].weights.shape == (784, 2704)
    assert [len(block) for block in problem.blocks] == [169] * 16
    np.testing.assert_array_equal(np.sort(np.concatenate(problem.blocks)), np.arange(2704))
    W = problem.weights.tocsc()
    rows = [set(W[:, block].indices) for block in problem.blocks]
    assert all(len(part) == 49 for part in rows)
    assert len(set.union(*rows)) == 784


def test_region_windows_are_clipped_windows(digits):
    """Each column is the part of a 7 x 7 window that lies in its region; each such part occurs."""
    problem = region_problem(digits)
    W = problem.weights.toarray().reshape(28, 28, 2704)
    assert set(np.unique(W)) == {0.0, 1.0}
    windows = fmx.windows((28, 28), 7).toarray().reshape(28, 28, -1)
    region = np.zeros((28, 28), bool)
    region[7:14, 14:21] = True  # the second row of regions, the third column: block 6
    clipped = windows * region[:, :, None]
    expected = {column.tobytes() for column in clipped.reshape(784, -1).T if column.any()}
    found = {np.ascontiguousarray(column).tobytes() for column in W[:, :, problem.blocks[6]].reshape(784, -1).T}
    assert found == expected


@pytest.mark.parametrize("width", [3, 5, 7])
def test_kernel_problem_places_each_kernel_around_each_pixel(width):
    problem = kernel_problem(draw_photographs(0, 1), width)
    kernels = data.load_cifar10_kernels(width)
    assert kernels.shape[1:] == (3, width, width)
    assert problem.model.layers[0].weights.shape == (3072, len(kernels) * 1024)


@pytest.mark.parametrize("make", [lambda draw: window_problem(draw, 3), lambda draw: window_problem(draw, 7)])
def test_optimum_is_that_of_a_dense_solve(digits, make):
    problem = make(digits)
    np.testing.assert_allclose(problem.optimum, dense_optimum(problem), rtol=1e-12)


def test_optimum_of_a_convolution_is_that_of_a_dense_solve():
    rng = np.random.default_rng(0)
    draw = Draw(0, rng.normal(size=(2, 3 * 36)), rng.normal(size=108), ("a", "b"))
    weights = fmx.Convolution(rng.normal(size=(4, 3, 3, 3)), (6, 6))
    problem = RidgeProblem("small", weights, draw, sd_x=0.5, sd_y=2.0)
    np.testing.assert_allclose(problem.optimum, dense_optimum(problem), rtol=1e-12)


def test_loss_is_the_formula_of_the_paper(digits):
    problem = window_problem(digits, 3)
    mean = np.random.default_rng(0).normal(size=(2, 900))
    W = problem.weights.toarray()
    by_hand = [
        0.5 * np.sum((digits.x[k] - digits.bias - W @ mean[k]) ** 2) + 0.5 * np.sum(mean[k] ** 2) for k in range(2)
    ]
    np.testing.assert_allclose(problem.loss(mean), by_hand)


def test_full_draws_from_the_complete_sets(monkeypatch):
    """The same drawing, from another pool: here the samples stand in for the complete sets."""
    monkeypatch.setattr(data, "load_mnist", data.load_mnist_sample)
    monkeypatch.setattr(data, "load_cifar10", lambda split: {"test": data.load_cifar10_sample()}[split])
    assert draw_digits(0, 3, full=True).names == draw_digits(0, 3).names
    assert draw_photographs(0, 3, full=True).names == draw_photographs(0, 3).names
