"""Callbacks, traces and Ctrl-C of runs with a full covariance and with unknown scales."""

import numpy as np
import pytest

import forestmix as fmx
from forestmix.posterior.course import fallen

W = np.random.default_rng(0).standard_normal((40, 3))
COUNTS = np.random.default_rng(1).poisson(2.0, 40).astype(float)


def model(family=None, sd=1.0):
    return fmx.DEF(fmx.Layer(family or fmx.Poisson(), W), prior=fmx.Prior(fmx.Gaussian(sd)))


UNKNOWN = fmx.scales.HalfNormal(1.0)


@pytest.mark.parametrize("sd", [1.0, UNKNOWN], ids=["known", "unknown"])
def test_a_callback_sees_every_step_and_does_not_change_the_result(sd):
    seen = []
    told = fmx.infer(model(sd=sd), COUNTS, covariance="full", callback=seen.append)
    quiet = fmx.infer(model(sd=sd), COUNTS, covariance="full")
    assert np.array_equal(told.mean, quiet.mean)
    assert np.array_equal(told.trace.objective, quiet.trace.objective)
    assert [info.iteration for info in seen] == list(range(len(seen)))
    assert all(0 <= info.share <= 1 and info.mean.shape == info.sd.shape == (3,) for info in seen)
    assert (np.diff(told.trace.objective) >= 0).all()
    assert told.n_iter == len(told.trace) - 1 > 1


def test_with_unknown_scales_the_trace_is_of_prior_times_evidence():
    """Gaussian rows: the evidence is a normal density of x."""
    from scipy import stats

    tau = fmx.scales.HalfNormal(1.0)
    result = fmx.infer(model(fmx.Gaussian(0.8), tau), W @ [1.0, -0.5, 0.2])
    climb = []
    fmx.infer(model(fmx.Gaussian(0.8), tau), W @ [1.0, -0.5, 0.2], callback=climb.append)

    def log_joint(theta):
        evidence = stats.multivariate_normal(np.zeros(40), 0.64 * np.eye(40) + np.exp(2 * theta) * W @ W.T)
        return evidence.logpdf(W @ [1.0, -0.5, 0.2]) + stats.halfnorm(0, 1.0).logpdf(np.exp(theta)) + theta

    best = max(log_joint(theta) for theta in np.linspace(-3, 1, 401))
    assert result.trace.objective[-1] == pytest.approx(best, abs=1e-3)
    assert max(info.objective for info in climb) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("sd", [1.0, UNKNOWN], ids=["known", "unknown"])
@pytest.mark.parametrize("count", [None, 3], ids=["one", "batch"])
def test_a_callback_stops_it_and_what_there_is_is_returned(sd, count):
    x = COUNTS if count is None else np.stack([COUNTS] * count)
    result = fmx.infer(model(sd=sd), x, covariance="full", callback=lambda info: info.iteration >= 1)
    assert fmx.Status.STOPPED in np.atleast_1d(np.asarray(result.status, object))
    assert not np.all(result.converged)
    assert np.isfinite(result.posterior().mean).all()
    if sd is UNKNOWN:
        assert "best values found before the run was stopped" in result.message


def interrupted_at(step):
    """A callback that does what Ctrl-C does at that step."""

    def callback(info):
        if info.iteration == step:
            raise KeyboardInterrupt

    return callback


def test_ctrl_c_returns_what_there_is(monkeypatch):
    result = fmx.infer(model(sd=UNKNOWN), COUNTS, callback=interrupted_at(3))
    assert result.status is fmx.Status.STOPPED
    fit = fmx.regress(
        "y ~ x + (1 | g)", {"y": COUNTS, "x": W[:, 0], "g": list("abcd") * 10}, "poisson", callback=interrupted_at(4)
    )
    assert fit.status is fmx.Status.STOPPED
    assert fmx.Status.STOPPED.value in fit.summary().notes


def test_shares_of_a_way_on_the_line_of_logarithms():
    assert fallen(1.0, 1.0, 1e-4) == 0.0
    assert fallen(1e-2, 1.0, 1e-4) == pytest.approx(0.5)
    assert fallen(0.0, 1.0, 1e-4) == fallen(1e-5, 1.0, 1e-4) == 1.0


@pytest.mark.parametrize("sd", [1.0, UNKNOWN], ids=["known", "unknown"])
def test_progress_is_shown(sd, capsys):
    fmx.infer(model(sd=sd), COUNTS, covariance="full", progress=True)
    assert "steps, CONVERGED" in capsys.readouterr().out
