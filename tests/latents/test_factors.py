"""Every family of factors against mpmath: moments, divergence, intervals, densities, draws."""

import mpmath
import numpy as np
import pytest
from scipy import special

import forestmix as fmx
from forestmix.latents import LATENTS, solve_tilt
from support import deep_oracles

#: For each family: an instance, its bias, the log of its prior density and where it lives.
FAMILIES = {
    "gaussian": (
        fmx.Gaussian(0.8), 0.3, lambda y: -((y - mpmath.mpf("0.3")) ** 2) / (2 * mpmath.mpf("0.8") ** 2)
        - mpmath.log(mpmath.mpf("0.8")) - mpmath.log(2 * mpmath.pi) / 2, [-mpmath.inf, 0, mpmath.inf],
    ),
    "bernoulli": (fmx.Bernoulli(), 0.4, lambda y: y * 0.4 - mpmath.log(1 + mpmath.exp(0.4)), [0, 1]),
    "poisson": (
        fmx.Poisson(), 0.7, lambda y: y * 0.7 - mpmath.exp(0.7) - mpmath.loggamma(y + 1), range(120),
    ),
    "exponential": (fmx.Exponential(1.5), 0.0, lambda y: mpmath.log(1.5) - 1.5 * y, [0, 1, 10, mpmath.inf]),
    "laplace": (
        fmx.Laplace(0.6), 0.5, lambda y: -abs(y - 0.5) / mpmath.mpf("0.6") - mpmath.log(2 * mpmath.mpf("0.6")),
        [-mpmath.inf, 0.5, mpmath.inf],
    ),
}  # fmt: skip
TILTS = [(0.0, 0.0), (0.5, 0.3), (4.0, -2.0), (30.0, 25.0), (200.0, -60.0)]


def one(value):
    return np.array([[float(value)]])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("H", "h"), TILTS)
def test_tilted_factors_have_the_right_moments_and_divergence(name, H, h):
    family, eta, log_prior, support = FAMILIES[name]
    q = LATENTS[type(family)].tilted(family, one(eta), one(H), one(h))
    discrete = q.discrete

    def log_density(y):
        return log_prior(y) - mpmath.mpf(H) * y**2 / 2 + mpmath.mpf(h) * y

    with mpmath.workdps(30):
        top = h / H if H else eta
        spots = support if discrete else sorted({*support, *((top,) if support[0] < top < support[-1] else ())})
        mean, variance, log_mass = deep_oracles.tilted_moments(log_density, spots, discrete)
        divergence = -mpmath.mpf(H) * (variance + mean**2) / 2 + mpmath.mpf(h) * mean - log_mass
    assert q.mean[0, 0] == pytest.approx(float(mean), rel=1e-11, abs=1e-13)
    assert q.sd[0, 0] == pytest.approx(float(mpmath.sqrt(variance)), rel=1e-10)
    assert q.relative_entropy(family, one(eta))[0, 0] == pytest.approx(float(divergence), rel=1e-9, abs=1e-10)
    assert q.pull(family, one(eta), one(H))[0, 0] == pytest.approx(float(h - H * mean), abs=1e-9 * (1 + H))


@pytest.mark.parametrize(("H", "h"), TILTS)
def test_spike_and_slab_by_bayes_rule(H, h):
    family, eta = fmx.SpikeSlab(inclusion=0.2, sd=1.3), 0.4
    with mpmath.workdps(30):
        sd = mpmath.mpf("1.3")

        def slab(y):
            return -((y - mpmath.mpf("0.4")) ** 2) / (2 * sd**2) - mpmath.log(sd) - mpmath.log(2 * mpmath.pi) / 2

        top = (h + 0.4 / 1.69) / (H + 1 / 1.69)
        mean, variance, mass = deep_oracles.tilted_moments(
            lambda y: slab(y) - mpmath.mpf(H) * y**2 / 2 + mpmath.mpf(h) * y, [-mpmath.inf, top, mpmath.inf]
        )
        odds = mpmath.exp(mass) * mpmath.mpf("0.2") / mpmath.mpf("0.8")
        inclusion = odds / (1 + odds)
        total = inclusion * mean
        spread = inclusion * (variance + mean**2) - total**2
    from forestmix.latents import SpikeSlabFactors

    q = SpikeSlabFactors.tilted(family, one(eta), one(H), one(h))
    assert q.inclusion[0, 0] == pytest.approx(float(inclusion), rel=1e-10)
    assert q.mean[0, 0] == pytest.approx(float(total), rel=1e-10, abs=1e-14)
    assert q.sd[0, 0] == pytest.approx(float(mpmath.sqrt(spread)), rel=1e-9)
    divergence = inclusion * mpmath.log(inclusion / mpmath.mpf("0.2"))
    divergence += (1 - inclusion) * mpmath.log((1 - inclusion) / mpmath.mpf("0.8"))
    divergence += inclusion * (-mpmath.mpf(H) * (variance + mean**2) / 2 + mpmath.mpf(h) * mean - mass)
    assert q.relative_entropy(family, one(eta))[0, 0] == pytest.approx(float(divergence), rel=1e-9, abs=1e-12)
    assert q.pull(family, one(eta), one(H))[0, 0] == pytest.approx(float(h - H * total), abs=1e-10 * (1 + H))


ALL = {**{name: entry[:2] for name, entry in FAMILIES.items()}, "spike and slab": (fmx.SpikeSlab(0.3), 0.2)}


@pytest.mark.parametrize("name", ALL)
def test_settled_mean_is_consistent_and_better_than_its_neighbours(name):
    """The 1-d problem has one optimum: no other tilt of q raises its objective."""
    family, eta = ALL[name]
    kind = LATENTS[type(family)]
    rng = np.random.default_rng(1)
    H, D, drive = rng.uniform(0.1, 5, (1, 40)), rng.uniform(5, 200, (1, 40)), 20 * rng.standard_normal((1, 40))
    eta = np.full((1, 40), eta)
    q = solve_tilt(kind, family, eta, H, D, drive, np.zeros((1, 40)))

    def objective(q):
        return -q.relative_entropy(family, eta) - 0.5 * D * q.mean**2 + drive * q.mean - 0.5 * H * q.variance

    h = q.pull(family, eta, H) + H * q.mean
    assert h == pytest.approx(drive - (D - H) * q.mean, rel=1e-9, abs=1e-8)
    best = objective(q)
    for step in (-0.5, -0.01, 0.01, 0.5):
        assert (objective(kind.tilted(family, eta, H, h + step)) <= best + 1e-9).all()


def bisected_mean(inclusion, sd, H, D, drive):
    """The mean of a spike and slab at the root of ``h + (D - H) M(h) = drive``, by halving an interval."""

    def mean(h):
        v = 1 / (H + sd**-2)
        return v * h * special.expit(special.logit(inclusion) + 0.5 * v * h**2 + 0.5 * np.log(v / sd**2))

    low, high = -1e8, 1e8
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle + (D - H) * mean(middle) < drive else (low, middle)
    return mean(low)


def test_the_tilt_is_found_from_any_start():
    """The mean of a spike and slab rises in a jump, between whose ends Newton's method goes to and fro."""
    from forestmix.latents import SpikeSlabFactors

    cases = [(0.1, 0.5, 1111.111, 90766.68, 252.8676)]
    rng = np.random.default_rng(3)
    for _ in range(30):
        H = 10.0 ** rng.uniform(-2, 6)
        D = H * 10.0 ** rng.uniform(0, 3)
        cases.append((rng.uniform(0.01, 0.9), 10.0 ** rng.uniform(-1, 1), H, D, D * rng.normal() * 0.1))
    for inclusion, sd, H, D, drive in cases:
        expected, family = bisected_mean(inclusion, sd, H, D, drive), fmx.SpikeSlab(inclusion, sd)
        for start in (-176.1827, 60.0, 0.0, -1e7, 1e7):
            q = solve_tilt(SpikeSlabFactors, family, one(0), one(H), one(D), one(drive), one(start))
            assert q.mean[0, 0] == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", ALL)
def test_quantiles_densities_and_draws_agree(name):
    family, eta = ALL[name]
    eta, H, h = np.full((1, 3), eta), np.array([[0.4, 3.0, 50.0]]), np.array([[0.5, -2.0, 20.0]])
    q = LATENTS[type(family)].tilted(family, eta, H, h)
    draws = fmx.LayerPosterior(q, True, np.dtype(np.float64)).sample(0, size=100_000)
    assert draws.mean(axis=0) == pytest.approx(q.mean[0], abs=0.02)
    assert draws.std(axis=0) == pytest.approx(q.sd[0], rel=0.03, abs=1e-3)
    for p in (0.05, 0.4, 0.97):
        y = q.quantile(np.full((1, 3), p))[0]
        assert ((draws <= y).mean(axis=0) >= p - 0.008).all()
        assert ((draws < y).mean(axis=0) <= p + 0.008).all()
    if not q.discrete:
        edges = np.quantile(draws, [0.02, 0.98], axis=0)
        grid = np.linspace(edges[0], edges[1], 4001)
        area = np.trapezoid(q.density(grid[:, None, :])[:, 0], grid, axis=0)
        inside = ((draws >= edges[0]) & (draws <= edges[1]) & (draws != 0)).mean(axis=0)
        assert area == pytest.approx(inside, abs=0.01)


@pytest.mark.parametrize("t", [-1e3, -40.0, -5.0, 0.0, 1.0, 3.9, 4.1, 8.0, 40.0, 1e3, 1e6])
def test_half_normal_far_out(t):
    """q(y) ∝ exp(-y^2 / 2 - t y) on y >= 0, however far the cut is from the mode."""
    from forestmix.latents import ExponentialFactors

    with mpmath.workdps(40):
        t_ = mpmath.mpf(t)
        hazard = mpmath.exp(-(t_**2) / 2) / mpmath.sqrt(2 * mpmath.pi) / (mpmath.erfc(t_ / mpmath.sqrt(2)) / 2)
        if t > 30:  # erfc underflows in what mpmath sums; Mills' continued fraction in forty digits instead
            tail = mpmath.mpf(0)
            for k in range(400, 0, -1):
                tail = k / (t_ + tail)
            hazard = t_ + tail
        mean, variance = hazard - t_, 1 - hazard * (hazard - t_)
        log_mass = -mpmath.log(hazard)
    line = ExponentialFactors(one(1.0), one(-t))
    assert line.mean[0, 0] == pytest.approx(float(mean), rel=1e-12)
    assert line.sd[0, 0] ** 2 == pytest.approx(float(variance), rel=1e-10)
    assert line.log_mass[0, 0] == pytest.approx(float(log_mass), rel=1e-13, abs=1e-13)
    for p in (1e-6, 0.3, 0.999):
        y = line.survival_quantile(one(np.log(p)))[0, 0]
        with mpmath.workdps(40):
            area = (
                mpmath.quad(lambda u: mpmath.exp(-(u**2) / 2 - t_ * u), [y, y + 40 / (1 + max(t, 0))]) if t > -9 else 0
            )
            expected = mpmath.exp(mpmath.log(area) - log_mass) if area else mpmath.mpf(p)
        assert float(expected) == pytest.approx(p, rel=1e-8)


def test_exponential_without_rows_is_the_prior():
    from forestmix.latents import ExponentialFactors

    q = ExponentialFactors.tilted(fmx.Exponential(2.0), one(0), one(0), one(0))
    assert q.mean[0, 0] == pytest.approx(0.5)
    assert q.sd[0, 0] == pytest.approx(0.5)
    assert q.relative_entropy(fmx.Exponential(2.0), one(0))[0, 0] == pytest.approx(0, abs=1e-15)
    assert q.quantile(one(0.5))[0, 0] == pytest.approx(np.log(2) / 2)


def test_counts_that_need_endless_tables_are_refused():
    from forestmix.latents import PoissonFactors

    with pytest.raises(fmx.ForestmixError, match="tables of more than"):
        PoissonFactors.tilted(fmx.Poisson(), one(12.0), one(0.0), one(0.0))
