"""``infer``: from a model and observations to a result."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from reprlib import repr as shown
from typing import Any

import numpy as np
import numpy.typing as npt

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, flag, is_number, one_of, whole_number
from forestmix.engines.choice import ENGINES, choose_engine
from forestmix.errors import ArgumentError
from forestmix.inference import ALGORITHMS, Algorithm, ForestMixture
from forestmix.inference.base import choose_objective
from forestmix.inference.batches import DEFAULT_MEMORY_BUDGET, merged, parts_of_batch
from forestmix.inference.checkpoint import Checkpoint, NoCheckpoint, digest_of, probes_of
from forestmix.inference.loop import Callback, Outcome, Run
from forestmix.inference.progress import NoProgress, ProgressBar
from forestmix.inference.status import Status
from forestmix.model import DEF, Observations, observations
from forestmix.posterior.full_result import joint_result
from forestmix.posterior.layer import LayerPosterior
from forestmix.posterior.many import MappedResult, is_dask_batch, mapped_result
from forestmix.posterior.many_scales import shared_scales
from forestmix.posterior.result import Result
from forestmix.problem.problem import Problem

#: Iterations when ``max_iter`` is left out.
DEFAULT_MAX_ITER = 10_000


def infer(
    model: DEF,
    x: npt.ArrayLike,
    algorithm: str | Algorithm = "fm",
    objective: str = "auto",
    accelerate: bool | str = True,
    covariance: str = "factorised",
    engine: str = "auto",
    init: Any = None,
    tol: float = 1e-6,
    max_iter: int | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    memory_budget: float = DEFAULT_MEMORY_BUDGET,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
    out: str | os.PathLike[str] | None = None,
    scales: str = "shared",
) -> Any:
    """Infer the mean-field posterior of the latents given observations.

    Args:
        model: the model.
        x: one observation (n,) or a batch (N, n), an array or a data frame; NaN, and what a masked array masks, marks
            a missing entry. A Dask array (N, n) is inferred in its chunks of observations (docs/scaling.md).
        algorithm: "fm", "cavi", "block", "hogwild", "damped", or an object such as ``CAVI(order="random")``.
        objective: "elbo", or "fm" for the paper's bound, which only the forest mixture algorithm climbs; "auto" is the
            ELBO. An algorithm object brings its own.
        accelerate: for "fm": conjugate gradients on the means or a factor of their matrix, whichever is faster, with
            the variances solved once for the whole batch; "cg" or "direct" for one of the two. Newton steps for rows
            that are not Gaussian.
        covariance: "factorised", or "full" for the best Gaussian q with all its correlations, for one layer under a
            Gaussian prior with up to 6,000 latents besides one-hot columns (docs/groups.md). Models with unknown scales
            have it anyway (docs/scales.md); with more latents, their scales are at their mode.
        engine: "reference" for NumPy's and SciPy's products, which compile nothing, "compiled" for Numba's kernels;
            "auto" takes the former where W is small (``forestmix.engines.choice``). W in an array of another library
            has the reference engine, on its own device.
        init: where to start: a ``Result``, or a pair ``(mean, sd)``, e.g. from an encoder; the prior when left out.
        tol: the run has converged when the relative gradient norm is at most ``tol`` and the optimum is near (see
            ``forestmix.inference.stopping``); each observation stops by itself. 0 runs to ``max_iter``. A full
            covariance has a limit of its own: it has converged when the ELBO can gain 1e-10 nats at most.
        max_iter: iterations at most; 10,000 when left out. 0 evaluates the bounds at the start.
        progress: show a progress bar.
        callback: called with an ``Iteration`` before the first and after every iteration; the run stops if it
            returns True. With unknown scales it is called after each set of them that was tried.
        memory_budget: bytes of work arrays that a batch may take. A larger batch is run in parts, one after another,
            and under Gaussian rows so are observations that miss different entries, each with the result that it has
            alone; a batch with a ``callback``, which sees all observations, or a ``checkpoint``, is run whole.
        checkpoint: path of a file that the run leaves its state in, and goes on from if it is there: a run that was
            killed takes the same steps when it is called again (docs/scaling.md).
        checkpoint_seconds: seconds between two checkpoints.
        out: for x in a Dask array: a folder that results go to in Zarr's format, chunk by chunk; called again with the
            same folder, a run that was killed goes on.
        scales: for a batch under a model with unknown scales: "shared" for one set of scales for all observations,
            "each" for one set each (docs/scales.md).

    Returns:
        A ``Result``; a run that diverges or hits its limit returns one too, and its ``message`` says what to try. For
        x in a Dask array a ``MappedResult``, whose entries are Dask arrays.

    """
    chosen = _algorithm(algorithm, objective, accelerate)
    one_of("scales", scales, ("shared", "each"))
    one_of("covariance", covariance, ("factorised", "full"))
    one_of("engine", engine, ENGINES)
    _check_options(tol, max_iter, progress, callback, memory_budget, checkpoint_seconds)
    if is_dask_batch(x) and isinstance(model, DEF) and not _is_one_batch(model, init, callback, checkpoint):
        _only_for_one_process(model, x, init=init, callback=callback, checkpoint=checkpoint)
        options = {
            "algorithm": chosen, "engine": engine, "covariance": covariance, "tol": tol, "max_iter": max_iter,
            "memory_budget": memory_budget, "scales": scales,
        }  # fmt: skip
        return _mapped(model, x, options, out, progress)
    if out is not None:
        raise ArgumentError(
            "out must be None but for x in a Dask array (N, n); where W is in chunks too, the scales must be known, "
            "and init, callback and checkpoint None."
        )
    data = observations(model, x)

    def keeper(how: Any) -> NoCheckpoint:
        return NoCheckpoint() if checkpoint is None else Checkpoint(checkpoint, checkpoint_seconds, model, data, how)

    if covariance == "full" or model.unknown_scales:
        _check_joint(chosen, init)

        def factorised(known: DEF, last: Any, steps: int | None) -> Result:
            found: Result = infer(known, x, chosen, init=last, max_iter=steps, progress=progress, callback=callback)
            return found

        how = "full", max_iter, scales
        return joint_result(model, data, max_iter, scales, factorised, keeper(how), callback, progress)
    evaluator = choose_engine(engine, model, len(data.x), sweeps=chosen.sweeps)
    limit = DEFAULT_MAX_ITER if max_iter is None else int(max_iter)
    whole = callback is not None or checkpoint is not None
    parts = [np.arange(len(data.x))] if whole else parts_of_batch(model, data, memory_budget)
    outcomes = []
    # Overflow is a status of the result, not a warning on the way.
    with np.errstate(all="ignore"), ProgressBar(chosen.name, tol) if progress else NoProgress() as meter:
        problem = chosen.problem(model, data, evaluator)
        start = problem.default_start() if init is None else problem.start(init)
        file = keeper(chosen)
        for part in parts:
            own = problem if len(parts) == 1 else problem.take(part)
            run = Run(chosen, own, start.take(part), tol, callback, file)
            run.loop(limit, meter)
            outcomes.append(run.outcome())
    return _result(model, data, chosen, problem, merged(outcomes, parts))


def _mapped(model: DEF, x: Any, options: dict[str, Any], out: Any, progress: bool) -> MappedResult:
    """Return the inference of the chunks of a Dask array, or write it to ``out``."""
    run: Any = partial(infer, **options)
    shared = None
    if model.unknown_scales and options["scales"] == "shared":
        _check_joint(options["algorithm"], None)
        run = shared = shared_scales(model, x)
    in_turns = _in_chunks(model)
    if out is None:
        found = mapped_result(model, x, run, in_turns=in_turns)
    else:
        from forestmix.posterior.many_files import inferred_to_zarr

        identity = digest_of(model, sorted(options.items(), key=lambda item: item[0])), probes_of(model)
        with ProgressBar("infer", options["tol"]) if progress else NoProgress() as meter:
            found = inferred_to_zarr(model, x, run, out, identity, meter, in_turns=in_turns)
    return found if shared is None else shared.put(found)


def _in_chunks(model: DEF) -> bool:
    """Return whether W of a layer is in chunks, which this process alone can ask."""
    return any(layer.weights.chunks is not None for layer in model.layers)


def _is_one_batch(model: DEF, *others: Any) -> bool:
    """Return whether x in a Dask array is taken as one batch: W is in chunks too, and chunks of x could not do it."""
    return _in_chunks(model) and (bool(model.unknown_scales) or any(one is not None for one in others))


def _check_joint(algorithm: Algorithm, init: Any) -> None:
    if not isinstance(algorithm, ForestMixture) or init is not None:
        raise ArgumentError("algorithm and init must be left out with covariance='full' and with unknown scales.")
    if algorithm.objective == "fm":
        raise ArgumentError(
            "objective must be 'auto' or 'elbo' with covariance='full' and with unknown scales; got 'fm'."
        )


def _only_for_one_process(model: DEF, x: Any, **given: Any) -> None:
    """Raise if a Dask array does not fit a model, or comes with what goes with data in memory only."""
    if x.shape[1] != model.n_observed:
        raise ArgumentError(f"x must have shape (N, {model.n_observed}) for this model; got {x.shape}.")
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"{name} must be None for x in a Dask array.")


def _result(model: DEF, data: Observations, algorithm: Algorithm, problem: Problem, outcome: Outcome) -> Result:
    """Return the outcome in the shape that x was given in."""
    trace = outcome.trace
    if data.single:
        trace = replace(trace, objective=trace.objective[:, 0], gradient_norm=trace.gradient_norm[:, 0])

    def shaped(batch: Array) -> Any:
        return batch.tolist()[0] if data.single else batch

    return Result(
        layers=tuple(LayerPosterior(q, data.single, model.dtype) for q in outcome.factors),
        algorithm=algorithm.name,
        objective_name=problem.objective_name,
        objective=shaped(outcome.objective),
        climbed=problem.climbed,
        converged=shaped(outcome.status == Status.CONVERGED),
        status=shaped(outcome.status),
        n_iter=shaped(outcome.n_iter),
        trace=trace,
        model=model,
        data=data,
        note=outcome.note,
    )


def _algorithm(algorithm: str | Algorithm, objective: str, accelerate: bool | str) -> Algorithm:
    """Return the algorithm object; options that it would have to ignore are refused."""
    choose_objective(objective)
    if isinstance(algorithm, Algorithm):
        if objective != "auto" or accelerate is not True:
            raise ArgumentError(
                "objective and accelerate go with an algorithm given by name; set them on the object instead, "
                f"e.g. ForestMixture(objective={objective!r}, accelerate={accelerate!r})."
            )
        return algorithm
    if one_of("algorithm", algorithm, ALGORITHMS) == ForestMixture.name:
        return ForestMixture(objective=objective, accelerate=accelerate)
    if objective == "fm":
        raise ArgumentError(f"objective must be 'auto' or 'elbo' for algorithm {algorithm!r}; got 'fm'.")
    return ALGORITHMS[algorithm]()


def _check_options(
    tol: float, max_iter: int | None, progress: bool, callback: object, memory_budget: float, checkpoint_seconds: float
) -> None:
    between_zero_and_one("tol", tol, or_zero=True)
    whole_number("max_iter", max_iter, least=0, optional=True)
    flag("progress", progress)
    if callback is not None and not callable(callback):
        raise ArgumentError(f"callback must be callable; got {type(callback).__name__}.")
    if not is_number(memory_budget) or not memory_budget > 0:
        raise ArgumentError(f"memory_budget must be a positive number of bytes; got {shown(memory_budget)}.")
    if not is_number(checkpoint_seconds) or not checkpoint_seconds >= 0:
        raise ArgumentError(f"checkpoint_seconds must be a number of at least 0; got {shown(checkpoint_seconds)}.")
