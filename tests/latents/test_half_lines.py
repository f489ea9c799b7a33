"""Half lines, and the factors made of them, in ill scales: against mpmath in hundreds of digits."""

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import forestmix as fmx
from forestmix.latents import ExponentialFactors, LaplaceFactors


def one(value):
    return np.array([[float(value)]])


def half_line(H, h):
    """Mean, variance and log of the mass of ``exp(-H y^2 / 2 + h y)`` on ``y >= 0``."""
    s = 1 / mpmath.sqrt(H)
    t = -h * s
    if t < 1e4:
        hazard = mpmath.npdf(t) / (mpmath.erfc(t / mpmath.sqrt(2)) / 2)
    else:
        tail = mpf(0)
        for k in range(80, 0, -1):
            tail = k / (t + tail)
        hazard = t + tail
    mean = hazard - t
    return s * mean, s**2 * (1 - hazard * mean), mpmath.log(s / hazard)


def exponential(q, rate):
    H, h = mpf(q.H[0, 0]), mpf(q.h[0, 0])
    mean, variance, log_mass = half_line(H, h)
    divergence = -H * (variance + mean**2) / 2 + (h + mpf(rate)) * mean - log_mass - mpmath.log(mpf(rate))
    return mean, mpmath.sqrt(variance), divergence, h + mpf(rate) - H * mean


def laplace(q):
    H, h, rate = (mpf(part[0, 0]) for part in (q.H, q.h, q.rate))
    sides = [half_line(H, sign * h - rate) for sign in (1, -1)]
    difference = sides[0][2] - sides[1][2]
    above, below = 1 / (1 + mpmath.exp(-difference)), 1 / (1 + mpmath.exp(difference))
    mean = above * sides[0][0] - below * sides[1][0]
    squared = sum(p * (side[1] + side[0] ** 2) for p, side in zip((above, below), sides, strict=True))
    top = max(side[2] for side in sides)
    log_mass = top + mpmath.log(sum(mpmath.exp(side[2] - top) for side in sides))
    divergence = -H * squared / 2 + h * mean - log_mass + mpmath.log(2 / rate)
    return mean, mpmath.sqrt(squared - mean**2), divergence, h - H * mean


@pytest.mark.parametrize("kind", ["exponential", "laplace"])
def test_moments_divergence_and_pull_in_ill_scales(kind):
    rng = np.random.default_rng(0)
    for k in range(120):
        H, rate = 10.0 ** rng.uniform(-20, 20), 10.0 ** rng.uniform(-30, 30)
        h = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-3, 8) * np.sqrt(H) + (rate if k % 2 else 0.0)
        family = fmx.Exponential(rate) if kind == "exponential" else fmx.Laplace(1 / rate)
        factors = ExponentialFactors if kind == "exponential" else LaplaceFactors
        q = factors.tilted(family, one(0), one(H), one(h))
        with mpmath.workdps(300):
            expected = exponential(q, rate) if kind == "exponential" else laplace(q)
            mean, sd, divergence, pull = (float(value) for value in expected)
        assert q.mean[0, 0] == pytest.approx(mean, rel=1e-13, abs=1e-13 * sd)
        assert q.sd[0, 0] == pytest.approx(sd, rel=1e-12)
        assert q.relative_entropy(family, one(0))[0, 0] == pytest.approx(divergence, rel=1e-13, abs=1e-12)
        size = rate + np.sqrt(H) + (max(-q.h[0, 0], 0.0) if kind == "exponential" else 0.0)
        assert q.pull(family, one(0), one(H))[0, 0] == pytest.approx(pull, abs=1e-13 * size)


@pytest.mark.parametrize("t", [-1e200, -1e9, -3.0, 0.0, 0.3, 30.0, 1e7, 1e9, 1e200])
@pytest.mark.parametrize("H", [1e-200, 1.0, 1e100])
def test_intervals_and_densities_far_out_warn_of_nothing(t, H):
    """Warnings are errors here; quantiles are in order, and the density integrates to what lies between two of them."""
    line = ExponentialFactors(one(H), one(-t * np.sqrt(H)))
    log_p = np.log(np.array([0.95, 0.6, 0.5, 0.4, 0.05]))[:, None, None]
    ends = line.survival_quantile(log_p)
    assert np.isfinite(ends).all()
    assert (np.diff(ends[:, 0, 0]) >= 0).all()
    middle, gap = line.density(ends[2])[0, 0], (ends[3] - ends[1])[0, 0]
    if t > -1e15:  # beyond, neighbouring numbers are further apart than the quantiles
        assert middle * gap == pytest.approx(0.2, rel=0.05)
    assert line.density(one(-1.0))[0, 0] == 0
    for family, kind in ((fmx.Laplace(1e-3), LaplaceFactors), (fmx.Exponential(1e3), ExponentialFactors)):
        q = kind.tilted(family, one(0.0), one(H), one(-t * np.sqrt(H)))
        for p in (1e-300, 1e-20, 0.3, 1 - 1e-16):
            assert np.isfinite(q.quantile(one(p))).all()
        assert not np.isnan(q.density(np.array([[[-1.0]], [[0.0]], [[1e300]]]))).any()
