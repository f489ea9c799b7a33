"""Iterations, sweeps and time to the ridge optimum on the paper's windows (28 x 28, unit variances).

Every algorithm runs to the same accuracy, a relative gap of 1e-6 in the ridge objective, before anything is compared.
Times are medians over repeats that take turns, relative to accelerated FM in the same run.
"""

import time
from statistics import median

import numpy as np
from scipy import linalg

import forestmix as fmx

GAP = 1e-6
REPEATS = 3
SIZES = (3, 7, 15)
#: Past this many iterations an algorithm is given up on.
LIMIT = {
    "FM (paper)": 20_000,
    "FM (elbo)": 20_000,
    "CAVI": 5_000,
    "CAVI, random order": 5_000,
    "FM, conjugate gradients": 2_000,
}
ALGORITHMS = {
    "FM, conjugate gradients": fmx.ForestMixture(accelerate="cg"),
    "FM (paper)": fmx.ForestMixture("fm", accelerate=False),
    "FM (elbo)": fmx.ForestMixture(accelerate=False),
    "CAVI": fmx.CAVI(),
    "CAVI, random order": fmx.CAVI("random"),
}


def ridge_to_gap(model, W, x, best, algorithm, limit):
    """Return iterations and seconds until the relative gap is below GAP, or None if it never is."""
    reached = []

    def check(info):
        residual = x - W @ info.mean
        loss = 0.5 * residual @ residual + 0.5 * info.mean @ info.mean
        if loss <= best * (1 + GAP):
            reached.append(info.iteration)
            return True
        return None

    start = time.perf_counter()
    fmx.infer(model, x, algorithm, tol=1e-15, max_iter=limit, callback=check)
    return (reached[0], time.perf_counter() - start) if reached else None


def main() -> None:
    rng = np.random.default_rng(0)
    x = np.clip(rng.standard_normal(784) * 0.6, -1, 1)
    fmx.infer(fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), fmx.windows((28, 28), 3))), x, "cavi", max_iter=1)  # compile
    print(f"Windows, to a relative gap of {GAP:g} in the ridge objective; time relative to accelerated FM in this run")
    print(f"{'s':>3} {'algorithm':<20} {'iterations':>11} {'time ratio':>11}")
    for size in SIZES:
        W = fmx.windows((28, 28), size)
        model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), W))
        best_mean = W.T @ linalg.solve(np.eye(784) + (W @ W.T).toarray(), x, assume_a="pos")
        best = 0.5 * np.sum((x - W @ best_mean) ** 2) + 0.5 * best_mean @ best_mean
        runs = {name: [] for name in ALGORITHMS}
        for repeat in range(REPEATS):
            for name, algorithm in ALGORITHMS.items():
                if repeat and runs[name][0] is None:
                    continue  # it did not get there the first time, and will not the second
                runs[name].append(ridge_to_gap(model, W, x, best, algorithm, LIMIT[name]))
        reference = median(seconds for _, seconds in runs["FM, conjugate gradients"])
        for name, results in runs.items():
            if results[0] is None:
                print(f"{size:>3} {name:<20} {'> ' + str(LIMIT[name]):>11} {'-':>11}")
            else:
                ratio = median(seconds for _, seconds in results) / reference
                print(f"{size:>3} {name:<20} {results[0][0]:>11} {ratio:>11.1f}")


if __name__ == "__main__":
    main()
