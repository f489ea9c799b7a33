"""Results of runs with a full covariance, and of models with unknown scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError
from forestmix.inference.checkpoint import NoCheckpoint
from forestmix.inference.loop import Callback
from forestmix.inference.progress import NoProgress, ProgressBar
from forestmix.latents import GaussianFactors
from forestmix.model import DEF, Observations
from forestmix.posterior.columns import fits_factor
from forestmix.posterior.course import Course
from forestmix.posterior.each import EachPosterior
from forestmix.posterior.full import MAX_ITER, FullFit, FullProblem, check_joint
from forestmix.posterior.integrate import ScaleFit, component, fit_scales
from forestmix.posterior.journal import Expected, Journal
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.posterior import Posterior
from forestmix.posterior.result import Result, Status, Trace
from forestmix.posterior.scale_em import Expectation, fit_scale_mode
from forestmix.posterior.scale_terms import scale_names

#: Said of a batch.
SHARED = "All observations share them (scales='shared')."
EACH = "Each observation has scales of its own (scales='each')."


def joint_result(
    model: DEF, data: Observations, max_iter: int | None, scales: str,
    run: Callable[[DEF, Any, int | None], Result], keeper: NoCheckpoint, callback: Callback | None = None,
    progress: bool = False,
) -> Result:  # fmt: skip
    """Return the posterior with full covariance, integrated over unknown scales where there are any.

    ``scales``: "shared" for one set of unknown scales for a whole batch, "each" for one set each; ``run``: infers the
    factorised q at known scales, from the result of the last run or from ``None``, in so many iterations. It serves
    where there are more latents than a factor can hold, to put unknown scales at their mode. ``keeper``: the checkpoint
    that steps are left in, and taken from. ``callback``: called after each step; of a model with unknown scales, after
    each value of ``L`` (``integrate.py``), which is its objective. ``progress``: show a bar; ``run`` has its own.
    """
    check_joint(model)
    model = model.on_host()
    factored = not model.unknown_scales or fits_factor(model.layers[0].weights)
    if not factored and scales == "each" and not data.single:
        raise ArgumentError(
            "scales must be 'shared' for a batch with more latents than a factor can hold; got 'each'. Infer the "
            "observations one by one."
        )
    journal, bar = Journal(keeper, Course(callback, data.single, keeps=True)), progress and factored
    with np.errstate(all="ignore"), ProgressBar("full covariance", 1.0) if bar else NoProgress() as meter:
        journal.course.meter = meter
        if not model.unknown_scales:
            result = full_result(model, data, max_iter, journal)
        elif not factored:
            result = scale_mode_result(model, data, run, journal)
        elif scales == "each" and not data.single:
            result = each_result(model, data, journal)
        else:
            (fit,) = fit_scales(model, data, journal=journal)
            result = result_of_scales(model, data, fit, journal.course)
        meter.share(f"{len(journal.course.objectives)} steps, {result.status.name}" if data.single else "done", 1.0)
    journal.close()
    return result


def full_result(model: DEF, data: Observations, max_iter: int | None, journal: Journal) -> Result:
    """Return the best Gaussian q with full covariance, as a result."""
    problem = FullProblem(model, data).at(model)
    fits = problem.fit(max_iter=MAX_ITER if max_iter is None else max_iter, journal=journal)
    remainders, elbos = problem.remainders(fits), np.array([fit.elbo for fit in fits])
    evidence = elbos + np.array([one.evidence for one in remainders] or np.zeros(len(fits)))
    posterior = Posterior(
        [component(model, np.empty(0), fits, remainders)], [1.0], model, data, "full",
        factors=_factors(model, fits), log_evidence=float(evidence[0]) if data.single else evidence,
    )  # fmt: skip
    steps = max(len(fit.trace) for fit in fits)
    # Observations that have ended stay where they are while others go on.
    objective = np.array([[*fit.trace, *[fit.elbo] * (steps - len(fit.trace))] for fit in fits]).T
    counts, trace = np.array([len(fit.trace) - 1 for fit in fits]), _trace(objective, journal.course.clock.seconds())
    return _result(posterior, trace, elbos, counts, _status(fits))


def _factors(model: DEF, fits: Sequence[FullFit]) -> tuple[Array, Array]:
    """Return means, and standard deviations of each latent with the others held, from the diagonal of the precision."""
    kappa = np.stack([fit.kappa for fit in fits])
    information = model.layers[0].weights.in_double().square().adjoint(kappa)
    return np.stack([fit.mean for fit in fits]), (
        model.prior.family.sd.astype(np.float64) ** -2.0 + information
    ) ** -0.5


def result_of_scales(model: DEF, data: Observations, fit: ScaleFit, course: Course) -> Result:
    """Return the fit of a model with unknown scales, which a batch shares, as a result.

    Its model has the scales at their mode, and its objective is the ELBO at the heaviest node. Its trace is that of the
    climb to the mode of log prior plus ELBO: the best value so far.
    """
    climbed, count = np.maximum.accumulate(course.objectives[: fit.climbed]), len(data.x)
    trace = _trace(np.repeat(climbed[:, None], count, axis=1), np.array(course.seconds[: fit.climbed]))
    counts, note = np.full(count, fit.climbed - 1), fit.message if data.single else f"{fit.message} {SHARED}"
    return _result(
        _over_scales(model, data, fit), trace, fit.elbos[np.argmax(fit.weights)], counts, _status([fit] * count), note
    )


def each_result(model: DEF, data: Observations, journal: Journal) -> Result:
    """Return the posterior of a batch whose observations have unknown scales of their own, as a result.

    Its model has the geometric mean over observations of the modes of their scales, and the objective is the ELBO of
    each observation at its heaviest node.
    """
    fits = fit_scales(model, data, "each", journal=journal)
    posteriors = []
    for k, fit in enumerate(fits):
        part = data.take(np.array([k]))
        own = Observations(part.x, part.observed, True)
        posteriors.append(_over_scales(model.take_observations(np.array([k])), own, fit))
    typical = np.exp(np.mean(np.log([fit.mode for fit in fits]), axis=0))
    elbos = np.array([fit.elbos[np.argmax(fit.weights)][0] for fit in fits])
    joint = EachPosterior(posteriors, model.with_scales(typical), data)
    counts = np.array([fit.climbed - 1 for fit in fits])
    trace = _trace(elbos[None], journal.course.clock.seconds())
    return _result(joint, trace, elbos, counts, _status(fits), f"{fits[0].message} {EACH}")


def _over_scales(model: DEF, data: Observations, fit: ScaleFit) -> Posterior:
    """Return the posterior that is a mixture over scales; its model has their mode."""
    return Posterior(
        fit.components, fit.weights, model.with_scales(fit.mode), data, "full",
        scales=dict(zip(scale_names(model), fit.scales, strict=True)),
        log_evidence=None if np.isnan(fit.log_evidence) else fit.log_evidence,
    )  # fmt: skip


def scale_mode_result(
    model: DEF, data: Observations, run: Callable[[DEF, Any, int | None], Result], journal: Journal
) -> Result:  # fmt: skip
    """Return the factorised posterior at the mode of the unknown scales, by variational EM."""
    last: list[Result | None] = [None]

    def expect(known: DEF) -> Expectation:
        before = journal.expected()
        result = last[0] = run(known, last[0], None) if before is None else run(known, (before.mean, before.sd), 0)
        journal.note(Expected(np.asarray(result.mean), np.asarray(result.sd)))
        stopped = Status.STOPPED in np.atleast_1d(np.asarray(result.status, object))
        return Expectation(np.atleast_2d(result.mean), np.atleast_2d(result.sd), float(np.sum(result.elbo)), stopped)

    mode = fit_scale_mode(model, data, expect)
    assert last[0] is not None
    return replace(last[0], scales=dict(zip(scale_names(model), mode.scales, strict=True)), note=mode.message)


def _status(fits: Sequence[Any]) -> Array:
    """Return how each observation ended."""
    near = [Status.CONVERGED if fit.converged else Status.STALLED for fit in fits]
    ended = [Status.STOPPED if fit.stopped else one for fit, one in zip(fits, near, strict=True)]
    return np.array(ended, dtype=object)


def _trace(objective: Array, seconds: Any) -> Trace:
    """Return the trace of objectives (T, N), with the seconds of each, or of the last."""
    steps = len(objective)
    known = seconds if np.ndim(seconds) else np.r_[np.full(steps - 1, np.nan), seconds]
    counts = np.arange(steps)
    return Trace(counts, counts, counts.astype(float), objective, np.full(objective.shape, np.nan), known)


def _result(
    joint: Posterior, trace: Trace, objective: Array, counts: Array, status: Array, note: str = ""
) -> Result:  # fmt: skip
    """Return a result whose factors are the margins of the joint posterior; objective, counts and status are (N,)."""
    single, converged = joint.data.single, status == Status.CONVERGED
    parts = joint.parts if isinstance(joint, EachPosterior) else (joint,)
    mean, variance = (np.concatenate(each) for each in zip(*(part.mixture.moments() for part in parts), strict=True))
    if single:
        trace = replace(trace, objective=trace.objective[:, 0], gradient_norm=trace.gradient_norm[:, 0])
    return Result(
        layers=(LayerPosterior(GaussianFactors(mean, np.sqrt(variance)), single, joint.model.dtype),),
        algorithm="full",
        objective_name="elbo",
        objective=float(objective[0]) if single else objective,
        climbed="elbo",
        converged=bool(converged[0]) if single else converged,
        status=status[0] if single else status,
        n_iter=int(counts[0]) if single else counts,
        trace=trace,
        model=joint.model,
        data=joint.data,
        joint=joint,
        scales=joint.scales,
        note=note,
    )
