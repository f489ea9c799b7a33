"""The loop and its result: stopping, callbacks, progress, safeguards, pictures, words."""

import time
from dataclasses import replace

import matplotlib
import matplotlib.pyplot
import numba
import numpy as np
import pytest

import forestmix as fmx
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.inference.plain import PlainSteps

matplotlib.use("Agg")


@pytest.fixture
def model():
    return fmx.DEF(fmx.Layer(fmx.Gaussian(sd=0.5), fmx.windows((4, 4), 3)))


def test_callback_can_stop_the_run(model):
    result = fmx.infer(model, model.sample(0).x, accelerate=False, callback=lambda info: info.iteration == 3)
    assert result.status is fmx.Status.STOPPED
    assert result.n_iter == 3


def test_what_a_callback_keeps_does_not_change_later(model):
    means = []
    fmx.infer(model, model.sample(0, size=2).x, accelerate=False, max_iter=5, callback=lambda i: means.append(i.mean))
    assert means[0].shape == (2, 36)
    assert (means[0] == 0).all()
    assert not (means[2] == means[5]).all()


def test_no_iterations_evaluates_the_start(model):
    x = model.sample(0).x
    q = np.full(36, 0.2), np.full(36, 0.5)
    result = fmx.infer(model, x, init=q, max_iter=0)
    assert result.n_iter == 0
    assert (result.mean == 0.2).all()
    assert result.elbo == pytest.approx(fmx.elbo(model, x, q))


def test_rounding_limit_is_reported_and_not_run_to_the_end():
    """A gradient that double precision cannot push below tol, since the weights differ by 1e7."""
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((30, 20)) * 10 ** np.linspace(0, 7, 30)[:, None]).astype(np.float64)
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
    result = fmx.infer(model, model.sample(1).x, tol=1e-14, max_iter=5000)
    assert result.status in (fmx.Status.STALLED, fmx.Status.CONVERGED)
    assert result.n_iter < 5000


@pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-10), (np.float32, 1e-6)])
def test_ill_conditioned_runs_converge_and_are_not_taken_for_stalled(dtype, tol):
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), fmx.windows((28, 28), 15, dtype=dtype)))
    x = np.random.default_rng(0).uniform(-1, 1, (4, 784)).astype(dtype)
    result = fmx.infer(model, x, tol=tol)
    assert result.converged.all(), result.message


def test_observations_that_overflow_at_the_prior_are_no_obstacle():
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.array([[1.0, 2.0], [0.5, 1.0]])))
    result = fmx.infer(model, np.array([1e160, -1e160]))
    assert np.isfinite(result.mean).all()
    assert not np.isnan(result.trace.objective).any()


def test_refused_proposals_fall_back_to_the_plain_step(model, monkeypatch):
    """A broken accelerator must not be able to lower the objective."""
    from forestmix.inference.accelerate import ConjugateSteps

    honest = ConjugateSteps.propose

    def broken(self, problem, point):
        proposal = honest(self, problem, point)
        q = proposal.q.moved(proposal.q.mean + 100.0, proposal.q.sd)
        return replace(proposal, q=q, point=None)

    monkeypatch.setattr(ConjugateSteps, "propose", broken)
    x = model.sample(0).x
    safe = fmx.infer(model, x, max_iter=30)
    plain = fmx.infer(model, x, accelerate=False, max_iter=30)
    assert (np.diff(safe.trace.objective) > 0).all()
    assert safe.mean == pytest.approx(plain.mean, rel=1e-10)


def test_a_fall_of_a_monotone_algorithm_is_an_alarm(model, monkeypatch):
    honest, calls = PlainSteps.propose, []

    def broken(self, problem, point):
        calls.append(1)
        proposal = honest(self, problem, point)
        q = proposal.q
        return proposal if len(calls) < 3 else replace(proposal, q=q.moved(q.mean + 10.0, q.sd))

    monkeypatch.setattr(PlainSteps, "propose", broken)
    result = fmx.infer(model, model.sample(0).x, accelerate=False)
    assert result.status is fmx.Status.DECREASED
    assert result.objective == pytest.approx(result.trace.objective[2])


def test_curvature_that_varies_takes_the_general_path(model, monkeypatch):
    """Gaussian rows without the shortcut for constant curvature give the same answer, groups included."""
    x = model.sample(0, size=3).x
    algorithms = [
        fmx.ForestMixture(accelerate=False),
        fmx.ForestMixture("fm", accelerate=False),
        fmx.ForestMixture("fm", groups=[range(20), range(20, 36)]),
    ]
    start = np.zeros(36), np.ones(36)
    fast = [fmx.infer(model, x, a, max_iter=10, init=start) for a in algorithms]
    monkeypatch.setattr(fmx.Gaussian, "curvature_is_constant", False)
    general = [fmx.infer(model, x, a, max_iter=10, init=start) for a in algorithms]
    for first, second in zip(fast, general, strict=True):
        assert second.mean == pytest.approx(first.mean, rel=1e-10, abs=1e-12)
        assert second.trace.objective == pytest.approx(first.trace.objective, rel=1e-12)


def test_variances_are_solved_once_for_a_batch(model, monkeypatch):
    rows = []
    honest = CompiledEngine.curvatures

    def counted(self, layer, kappa, sd, want):
        rows.append(sd.shape[0])
        return honest(self, layer, kappa, sd, want)

    monkeypatch.setattr(CompiledEngine, "curvatures", counted)
    fmx.infer(model, model.sample(0, size=50).x, objective="fm")
    assert set(rows) == {1}


def test_progress_is_shown(model, capsys):
    fmx.infer(model, model.sample(0, size=2).x, progress=True)
    output = capsys.readouterr().out
    assert "objective" in output
    assert "2/2 done" in output


def test_the_bar_ends_with_the_gradient_of_the_result(model, capsys):
    for x in (model.sample(0).x, model.sample(0, size=3).x):
        result = fmx.infer(model, x, progress=True, accelerate=False, tol=1e-4)
        assert f"gradient {np.max(result.trace.gradient_norm[-1]):.1e}" in capsys.readouterr().out


def test_tol_zero_runs_to_the_limit(model, capsys):
    x = model.sample(0).x
    result = fmx.infer(model, x, accelerate=False, tol=0, max_iter=120, progress=True)
    assert (result.n_iter, result.status) == (120, fmx.Status.MAX_ITER)
    assert fmx.infer(model, x, tol=0.0, max_iter=300).elbo >= fmx.infer(model, x).elbo - 1e-12


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_seconds_are_without_compilation(model):
    """A callback that has Numba compile a function stands for a kernel at its first use."""
    took = []

    def compile_something(info):
        began = time.perf_counter()
        numba.njit(lambda y: y[0] + 1)(np.ones(3))
        took.append(time.perf_counter() - began)

    x = model.sample(0).x
    fmx.infer(model, x, accelerate=False, max_iter=2)
    began = time.perf_counter()
    result = fmx.infer(model, x, accelerate=False, max_iter=2, callback=compile_something)
    wall = time.perf_counter() - began
    assert (np.diff(result.trace.seconds) >= 0).all()
    assert result.trace.seconds[-1] <= wall - 0.5 * sum(took)


def test_batch_message_counts_and_repr(model):
    x = model.sample(0, size=3).x
    x[1] = 0
    result = fmx.infer(model, x, accelerate=False, max_iter=2, tol=0.5)
    assert "of 3 observations" in result.message
    assert "3x36" in repr(result)
    assert "CONVERGED after" in repr(fmx.infer(model, x[0]))


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("objective", ["fm", "elbo"])
def test_plot_trace(model, size, objective, tmp_path):
    axes = fmx.infer(model, model.sample(0, size=size).x, objective=objective).plot_trace()
    assert len(axes[0].lines) == (size or 1)
    assert axes[1].get_yscale() == "log"
    assert axes[0].get_ylabel().startswith({"fm": "forest", "elbo": "ELBO"}[objective])
    axes[0].figure.savefig(tmp_path / "trace.png")
    assert (tmp_path / "trace.png").stat().st_size > 5000
    matplotlib.pyplot.close("all")


def test_plot_trace_draws_on_given_axes(model):
    figure, axes = matplotlib.pyplot.subplots(1, 2)
    assert fmx.infer(model, model.sample(0).x).plot_trace(axes)[0] is axes[0]
    matplotlib.pyplot.close(figure)


def test_sampling_has_the_right_moments():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3, 2))
    sd, prior_sd, b, bias = (
        np.array([0.5, 1.0, 2.0]),
        np.array([1.0, 0.3]),
        np.array([1.0, 0.0, -1.0]),
        np.array([2.0, 0.0]),
    )
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(sd), W, b), prior=fmx.Prior(fmx.Gaussian(prior_sd), bias))
    draw = model.sample(1, size=40_000)
    assert draw.latents[0].mean(axis=0) == pytest.approx(bias, abs=0.03)
    assert draw.x.mean(axis=0) == pytest.approx(b + W @ bias, abs=0.06)
    assert np.cov(draw.x.T) == pytest.approx(np.diag(sd**2) + (W * prior_sd**2) @ W.T, abs=0.12)
    assert model.sample(1).x.shape == (3,)
    assert (model.sample(1).x == model.sample(np.random.default_rng(1)).x).all()
    assert "DEF(Layer(Gaussian" in repr(model)
