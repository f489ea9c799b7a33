"""Planted forests: who finds them, how well the rest of the data is predicted, and how long it takes.

``python -m benchmarks.forest`` prints three tables and, with ``--write``, puts them into docs/forest.md;
``--quick`` takes one seed and leaves out the largest problems. On a machine that is busy, OMP_NUM_THREADS=1 keeps
the threads of several methods from waiting for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import forestmix as fmx

PAGE = Path(__file__).parent.parent / "docs" / "forest.md"
#: A method slower than this many processor seconds on a problem is left out of its further seeds ...
PATIENCE = 120.0
#: ... and one slower than this is stopped.
LIMIT = 300.0
#: Seeds from here on were not looked at while the method was made; smaller ones were.
FIRST_SEED = 1000


class Problem(NamedTuple):
    """n variables in m trees, N observations, and the mean signal-to-noise ratio of a variable."""

    n: int
    m: int
    N: int
    ratio: float
    level: str


PROBLEMS = (
    Problem(100, 5, 200, 1.0, "easy"),
    Problem(100, 5, 200, 0.1, "hard"),
    Problem(100, 20, 200, 0.5, "small trees"),
    Problem(200, 50, 300, 0.5, "smallest trees"),
    Problem(300, 10, 500, 0.1, "medium"),
    Problem(300, 10, 500, 0.05, "hard"),
    Problem(500, 50, 500, 0.2, "medium"),
    Problem(1000, 20, 300, 0.1, "hard"),
    Problem(1000, 50, 5000, 0.03, "hard, many observations"),
    Problem(2000, 50, 1000, 0.2, "large"),
)


def plant(problem: Problem, seed: int, extra: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations, further ones held out, and the parents; weights differ in size and sign."""
    rng = np.random.default_rng(FIRST_SEED + seed)
    parents = rng.integers(problem.m, size=problem.n)
    w = rng.uniform(0.5, 1.5, problem.n) * rng.choice([-1, 1], problem.n) * np.sqrt(problem.ratio)
    N = problem.N + extra
    x = rng.standard_normal((N, problem.m))[:, parents] * w + rng.standard_normal((N, problem.n))
    return x[: problem.N], x[problem.N :], parents


def forest(X: np.ndarray, m: int) -> np.ndarray:
    return fmx.ForestMixtureModel(m, random_state=0).fit(X).parents_


def linear_corex(X: np.ndarray, m: int) -> np.ndarray:
    return corex_groups(fitted_corex(X, m))


def corex_groups(model) -> np.ndarray:
    """Return each variable's latent by mutual information, which finds more than its clusters(), by weight, does."""
    return np.argmax(model.mis, axis=0)


def fitted_corex(X: np.ndarray, m: int):
    # It prints that CUDA is absent when it is imported.
    with contextlib.redirect_stdout(io.StringIO()):
        import linearcorex
    return linearcorex.Corex(n_hidden=m, seed=0).fit(X)


def factor_analysis(X: np.ndarray, m: int) -> np.ndarray:
    from sklearn.decomposition import FactorAnalysis

    loadings = FactorAnalysis(m, rotation="varimax", random_state=0).fit(X / X.std(axis=0)).components_
    return np.argmax(np.abs(loadings), axis=0)


def agglomeration(X: np.ndarray, m: int) -> np.ndarray:
    """Average linkage on 1 - |correlation|, since Ward's linkage on the data cannot see past signs."""
    from sklearn.cluster import AgglomerativeClustering

    distance = 1 - np.abs(np.corrcoef(X.T))
    return AgglomerativeClustering(m, metric="precomputed", linkage="average").fit_predict(distance)


def feature_agglomeration(X: np.ndarray, m: int) -> np.ndarray:
    from sklearn.cluster import FeatureAgglomeration

    return FeatureAgglomeration(m).fit((X - X.mean(axis=0)) / X.std(axis=0)).labels_


def k_means(X: np.ndarray, m: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(m, n_init=5, random_state=0).fit_predict(np.abs(np.corrcoef(X.T)))


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "forest mixture": forest,
    "linear CorEx": linear_corex,
    "FA + varimax": factor_analysis,
    "FeatureAgglomeration": feature_agglomeration,
    "average linkage": agglomeration,
    "k-means": k_means,
}


def recovery(problems: tuple[Problem, ...], seeds: int) -> list[str]:
    """Return a table of adjusted Rand indices, means over seeds; the best of a row is bold."""
    from sklearn.metrics import adjusted_rand_score

    lines = [
        "| variables | trees | observations | signal / noise | " + " | ".join(METHODS) + " |",
        "|---" * (4 + len(METHODS)) + "|",
    ]
    for problem in problems:
        scores: dict[str, list[float]] = {name: [] for name in METHODS}
        slow: set[str] = set()
        for seed in range(seeds):
            X, _, parents = plant(problem, seed)
            for name, method in METHODS.items():
                if name in slow:
                    continue
                start = time.process_time()
                with contextlib.suppress(TimeoutError), limit(LIMIT):
                    scores[name].append(adjusted_rand_score(parents, method(X, problem.m)))
                if time.process_time() - start > PATIENCE:
                    slow.add(name)
        means = {name: float(np.mean(values)) if values else np.nan for name, values in scores.items()}
        best = np.nanmax(list(means.values()))
        cells = []
        for name, mean in means.items():
            text = f"**{mean:.3f}**" if mean > best - 5e-4 else f"{mean:.3f}"
            fewer = f" ({len(scores[name])} of {seeds})" if len(scores[name]) < seeds else ""
            cells.append(text + fewer if scores[name] else f"> {LIMIT / 60:.0f} min")
        lines.append(f"| {problem.n} | {problem.m} | {problem.N} | {problem.ratio:g} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after some seconds of processor time."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def held_out(problems: tuple[Problem, ...], seeds: int) -> list[str]:
    """Return a table of mean log-likelihoods of observations held out."""
    from sklearn.decomposition import FactorAnalysis

    lines = [
        "| variables | trees | observations | signal / noise | forest mixture | FactorAnalysis |",
        "|---" * 6 + "|",
    ]
    for problem in problems:
        rows = []
        for seed in range(seeds):
            X, new, _ = plant(problem, seed, extra=500)
            model = fmx.ForestMixtureModel(problem.m, random_state=0).fit(X)
            factors = FactorAnalysis(problem.m, random_state=0).fit(X)
            rows.append((model.score(new), factors.score(new)))
        ours, theirs = np.mean(rows, axis=0)
        cells = (f"**{ours:.2f}** | {theirs:.2f}", f"{ours:.2f} | **{theirs:.2f}**")[int(theirs > ours)]
        lines.append(f"| {problem.n} | {problem.m} | {problem.N} | {problem.ratio:g} | {cells} |")
        print(lines[-1], flush=True)
    return lines


def timing(sizes: tuple[tuple[int, int, int], ...]) -> list[str]:
    """Return a table of processor seconds: 30 sweeps, also for each entry of X, tree and sweep; fits to the end."""
    lines = [
        "| variables | observations | trees | seconds (sweeps) | per entry, tree and sweep (ns) | one start (s) "
        "| default, 8 starts (s) | linear CorEx (s) | Rand index: one start, default, CorEx |",
        "|---" * 9 + "|",
    ]
    from sklearn.metrics import adjusted_rand_score

    for n, N, m in sizes:
        X, _, parents = plant(Problem(n, m, N, 0.3, ""), 0)
        sweeps, thirty = seconds(lambda X=X, m=m: thirty_sweeps(m).fit(X))
        single, first = seconds(lambda X=X, m=m: fmx.ForestMixtureModel(m, n_init=1, n_moves=0, random_state=0).fit(X))
        default, model = seconds(lambda X=X, m=m: fmx.ForestMixtureModel(m, random_state=0).fit(X))
        labels, text = [first.parents_, model.parents_], f"> {3 * LIMIT / 60:.0f} min"
        with contextlib.suppress(TimeoutError), limit(3 * LIMIT):
            taken, other = seconds(lambda X=X, m=m: fitted_corex(X, m))
            labels, text = [*labels, corex_groups(other)], f"{taken:.3g}"
        index = ", ".join(f"{adjusted_rand_score(parents, label):.3f}" for label in labels)
        each = sweeps / (n * N * m * thirty.n_iter_) * 1e9
        row = (
            n,
            N,
            m,
            f"{sweeps:.3g} ({thirty.n_iter_})",
            f"{each:.2f}",
            f"{single:.3g}",
            f"{default:.3g}",
            text,
            index,
        )
        lines.append("| " + " | ".join(map(str, row)) + " |")
        print(lines[-1], flush=True)
    return lines


def thirty_sweeps(m: int) -> fmx.ForestMixtureModel:
    """Return a model that takes 30 sweeps from one start, or as many as raise the ELBO beyond rounding."""
    return fmx.ForestMixtureModel(m, n_init=1, n_moves=0, temperature=1.0, max_iter=30, tol=0.0, random_state=0)


def seconds(action: Callable[[], object]) -> tuple[float, object]:
    """Return the processor time of all threads, which other work on the machine hardly changes, and the value."""
    start = time.process_time()
    value = action()
    return time.process_time() - start, value


def pictures() -> None:
    """Draw the pictures of docs/forest.md into docs/, from that page's own code."""
    import re

    import matplotlib

    matplotlib.use("Agg")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    for block in (blocks[0], next(block for block in blocks if "from_bound" in block)):
        text = re.sub(r'savefig\("(\w+\.png)"', lambda match: f'savefig(r"{PAGE.parent / match[1]}", dpi=110', block)
        exec(compile(text, PAGE.name, "exec"), names)


def write(name: str, lines: list[str]) -> None:
    """Put a table between its two marks in the page."""
    text = PAGE.read_text("utf-8")
    head, tail = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(head)
    _, after = rest.split(tail)
    PAGE.write_text(before + head + "\n".join(lines) + "\n" + tail + after, "utf-8")


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, without the largest problems")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/forest.md")
    parser.add_argument("--pictures", action="store_true", help="draw the pictures of docs/forest.md, and nothing else")
    parser.add_argument("--only", choices=("recovery", "held-out", "timing"), help="one table")
    options = parser.parse_args(arguments)
    if options.pictures:
        pictures()
        return
    problems = tuple(p for p in PROBLEMS if not options.quick or p.n * p.N <= 250_000)
    seeds = 1 if options.quick else 3
    sizes = ((500, 500, 10), (1000, 1000, 20), (2000, 2000, 20), (5000, 2000, 50))
    tables: dict[str, Callable[[], list[str]]] = {
        "recovery": lambda: recovery(problems, seeds),
        "held-out": lambda: held_out(tuple(p for p in problems if p.n * p.N <= 1_000_000), seeds),
        "timing": lambda: timing(sizes[:2] if options.quick else sizes),
    }
    for name, table in tables.items():
        if options.only in (None, name):
            print(f"\n{name}\n", flush=True)
            lines = table()
            print("\n" + "\n".join(lines), flush=True)
            if options.write:
                write(name, lines)


if __name__ == "__main__":
    main(sys.argv[1:])
