"""Accuracy and time of forestmix against NUTS (NumPyro) on Bayesian regressions with real data.

Every coefficient has the prior N(0, 1); covariates are standardised, with an intercept column beside them. The data
come with scikit-learn and statsmodels, so nothing is downloaded.

forestmix runs as it does by default, ``infer`` and then ``posterior()``. NUTS is given favourable conditions: float64,
a dense mass matrix, and a potential that needs one product with the design matrix and its transpose. Four chains, one
after another, warm up for 1000 transitions and then draw blocks of 1000 each, until Monte Carlo errors are below 1 % of
every posterior standard deviation and 0.02 posterior standard deviations of every mean. The draws are the reference::

    |mean - NUTS mean| / NUTS sd     target: at most 0.1, for every coefficient
    |sd / NUTS sd - 1|               target: at most 5 %, for every coefficient

The breast cancer data are there to show the limit: near separable, with covariates correlated up to 0.998. There mean
field, which leaves out the posterior correlations, makes the rows' variances too large, and that shifts the means.

Each data set has a process of its own with an empty Numba cache, so that both sides compile; what that takes is a
column apart. Numba's code stays on disk for later processes, that of JAX does not. Two times are given for NUTS: of the
usual 1000 + 1000 transitions per chain, and of all that the reference took. Needs ``pip install -e ".[bench]"``.
"""

import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median

import numpy as np

import forestmix as fmx

SEED = 0
CHAINS = 4
#: Transitions of the warm-up, and of each block of draws.
BLOCK = 1000
MAX_BLOCKS = 20
#: Blocks of draws are added until Monte Carlo errors are below these.
MEAN_ERROR, SD_ERROR = 0.02, 0.01
MEAN_TARGET, SD_TARGET = 0.1, 0.05
#: Imported only where they are used, so that the other benchmarks do not need them.
PACKAGES = ("jax", "numpyro", "sklearn", "statsmodels")
#: forestmix is timed this often after its first run; the median counts.
REPEATS = 5


def with_intercept(covariates):
    """Return the design matrix: a column of ones, then the covariates with mean 0 and standard deviation 1."""
    covariates = np.asarray(covariates, float)
    standard = (covariates - covariates.mean(axis=0)) / covariates.std(axis=0)
    return np.column_stack([np.ones(len(standard)), standard])


def breast_cancer():
    """Return whether 569 tumours were benign, given 30 covariates: nearly separable, and strongly correlated."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return with_intercept(data.data), np.asarray(data.target, float)


def affairs():
    """Return whether 6366 women of Fair's survey reported an affair, given 8 covariates."""
    from statsmodels.api import datasets

    data = datasets.fair.load_pandas()
    return with_intercept(data.exog), np.asarray(data.endog > 0, float)


def doctor_visits():
    """Return the doctor visits of 20,190 person-years of the RAND health experiment, given 9 covariates."""
    from statsmodels.api import datasets

    data = datasets.randhie.load_pandas()
    return with_intercept(data.exog), np.asarray(data.endog, float)


PROBLEMS = {
    "logistic, affairs": (fmx.Bernoulli(), affairs),
    "Poisson, doctor visits": (fmx.Poisson(), doctor_visits),
    "logistic, breast cancer": (fmx.Bernoulli(), breast_cancer),
}


@dataclass(frozen=True)
class Reference:
    """What NUTS found, how sure it is, and how long it took."""

    mean: np.ndarray
    sd: np.ndarray
    r_hat: float
    effective: float
    mean_error: float
    sd_error: float
    divergences: int
    draws: int
    compile_seconds: float
    usual_seconds: float
    all_seconds: float

    @property
    def precise(self) -> bool:
        """Whether the draws are enough."""
        return self.mean_error < MEAN_ERROR and self.sd_error < SD_ERROR


@dataclass(frozen=True)
class Measurement:
    """One data set: distances from the reference for every coefficient, and times."""

    shape: tuple[int, int]
    reference: Reference
    status: str
    mean_distance: np.ndarray
    corrected_error: np.ndarray
    mean_field_error: np.ndarray
    compile_seconds: float
    seconds: float


def run_forestmix(family, X, y):
    """Return the result, the posterior, the seconds of compilation and of a later run."""
    model = fmx.DEF(fmx.Layer(family, X), prior=fmx.Prior(fmx.Gaussian(sd=1.0)))
    times = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        result = fmx.infer(model, y)
        posterior = result.posterior()
        posterior.sd  # noqa: B018 - it is computed when first asked for
        times.append(time.perf_counter() - start)
    seconds = median(times[1:])
    return result, posterior, max(times[0] - seconds, 0.0), seconds


def potential(family, X, y):
    """Return the negative log posterior as a function of the coefficients, up to a constant."""
    import jax.numpy as jnp

    X, statistic = jnp.asarray(X), jnp.asarray(X.T @ y)
    log_partition = jnp.exp if isinstance(family, fmx.Poisson) else lambda eta: jnp.logaddexp(eta, 0.0)
    return lambda beta: 0.5 * beta @ beta - statistic @ beta + jnp.sum(log_partition(X @ beta))


def compiled_chains(energy, size):
    """Return the chains' first states and the compiled function that takes them ``BLOCK`` transitions further."""
    import jax
    from numpyro.infer.hmc import hmc
    from numpyro.util import fori_collect

    initial, transition = hmc(energy, algo="NUTS")

    def start(key):
        return initial(np.zeros(size), num_warmup=BLOCK, dense_mass=True, rng_key=key)

    def advance(state):
        return fori_collect(
            0, BLOCK, transition, state, lambda now: (now.z, now.diverging), progbar=False, return_last_val=True
        )

    states = jax.lax.map(start, jax.random.split(jax.random.key(SEED), CHAINS))
    return states, jax.jit(lambda states: jax.lax.map(advance, states)).lower(states).compile()


def run_nuts(family, X, y):
    """Return the reference, from as many blocks of draws as its precision takes."""
    import jax

    jax.config.update("jax_enable_x64", True)
    times = [time.perf_counter()]
    states, advance = compiled_chains(potential(family, X, y), X.shape[1])
    times.append(time.perf_counter())
    _, states = jax.block_until_ready(advance(states))  # the warm-up
    blocks, divergences = [], 0
    while len(blocks) < MAX_BLOCKS:
        (draws, diverging), states = jax.block_until_ready(advance(states))
        times.append(time.perf_counter())
        blocks.append(np.asarray(draws))
        divergences += int(np.sum(diverging))
        reference = summary(np.concatenate(blocks, axis=1), divergences, times)
        if reference.precise:
            break
    return reference


def summary(draws, divergences, times):
    """Return the reference that ``draws`` (chains, draws, coefficients) make, with its Monte Carlo errors."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    squares = (draws - mean) ** 2
    effective, of_squares = effective_sample_size(draws), effective_sample_size(squares)
    sd_error = squares.std(axis=(0, 1)) / (2 * sd**2 * np.sqrt(of_squares))
    return Reference(
        mean,
        sd,
        r_hat=float(np.max(split_gelman_rubin(draws))),
        effective=float(min(effective.min(), of_squares.min())),
        mean_error=float(np.max(effective**-0.5)),
        sd_error=float(np.max(sd_error)),
        divergences=divergences,
        draws=draws.shape[0] * draws.shape[1],
        compile_seconds=times[1] - times[0],
        usual_seconds=times[2] - times[1],
        all_seconds=times[-1] - times[1],
    )


def measure(name):
    """Run both sides on one data set."""
    family, load = PROBLEMS[name]
    X, y = load()
    result, posterior, compile_seconds, seconds = run_forestmix(family, X, y)
    reference = run_nuts(family, X, y)
    return Measurement(
        X.shape,
        reference,
        result.status.name,
        mean_distance=np.abs(posterior.mean - reference.mean) / reference.sd,
        corrected_error=np.abs(posterior.sd / reference.sd - 1),
        mean_field_error=np.abs(result.sd / reference.sd - 1),
        compile_seconds=compile_seconds,
        seconds=seconds,
    )


def use_numba_cache(folder):
    os.environ["NUMBA_CACHE_DIR"] = folder


def measure_afresh(name):
    """Call ``measure`` in a new process that finds no compiled code of Numba, which it has not imported yet."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as empty, ProcessPoolExecutor(1, context, use_numba_cache, (empty,)) as pool:
        return pool.submit(measure, name).result()


def print_reference(rows):
    print(f"{'reference: NUTS':<24} {'rows x coef.':>12} {'draws':>7} {'r_hat':>7} {'least ESS':>10} "
          f"{'MC error of means':>18} {'of sds':>7} {'divergences':>12}")  # fmt: skip
    for name, row in rows.items():
        nuts = row.reference
        shape = f"{row.shape[0]} x {row.shape[1]}"
        print(f"{name:<24} {shape:>12} {nuts.draws:>7} {nuts.r_hat:>7.4f} {nuts.effective:>10.0f} "
              f"{nuts.mean_error:>15.3f} sd {nuts.sd_error:>7.2%} {nuts.divergences:>12}")  # fmt: skip


def verdict(errors, target):
    return "PASS" if errors.max() <= target else f"FAIL: {np.sum(errors > target)} of {len(errors)}"


def print_accuracy(rows):
    print(f"{'accuracy: max (median)':<24} {'mean, in sds':>15} {'corrected sd':>17} {'mean-field sd':>17} "
          f"{f'mean <= {MEAN_TARGET:g}':>16} {f'corrected <= {SD_TARGET:.0%}':>17}")  # fmt: skip
    for name, row in rows.items():
        means = f"{row.mean_distance.max():.3f} ({np.median(row.mean_distance):.3f})"
        sds = [
            f"{errors.max():.1%} ({np.median(errors):.1%})" for errors in (row.corrected_error, row.mean_field_error)
        ]
        print(f"{name:<24} {means:>15} {sds[0]:>17} {sds[1]:>17} {verdict(row.mean_distance, MEAN_TARGET):>16} "
              f"{verdict(row.corrected_error, SD_TARGET):>17}")  # fmt: skip


def print_times(rows):
    print(f"{'time relative to':<24} {'forestmix':>10} {'its':>12} {'JAX':>12} {'NUTS, usual':>12} {'NUTS, all':>12}")
    print(f"{'forestmix in this run':<24} {'(seconds)':>10} {'compilation':>12} {'compilation':>12} "
          f"{f'{BLOCK} draws':>12} {'draws':>12}")  # fmt: skip
    for name, row in rows.items():
        nuts = row.reference
        seconds = (row.compile_seconds, nuts.compile_seconds, nuts.usual_seconds, nuts.all_seconds)
        ratios = "".join(f" {value / row.seconds:>11.0f}x" for value in seconds)
        print(f"{name:<24} {row.seconds:>10.3f}{ratios}")


def print_doubts(rows):
    """Say where a run did not end as it should, so that its row is read with care."""
    for name, row in rows.items():
        if row.status != "CONVERGED":
            print(f"{name}: forestmix ended as {row.status}")
        if not row.reference.precise or row.reference.r_hat > 1.01:
            print(f"{name}: NUTS is not precise after {row.reference.draws} draws")


def main() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        print(f'The comparison with NUTS needs {", ".join(missing)}: pip install -e ".[bench]"')
        return
    rows = {name: measure_afresh(name) for name in PROBLEMS}
    print("forestmix and NUTS on Bayesian regressions, prior N(0, 1) on every coefficient")
    for show in (print_reference, print_accuracy, print_times, print_doubts):
        print()
        show(rows)


if __name__ == "__main__":
    main()
