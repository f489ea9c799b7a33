"""Beyond the paper: more algorithms on two of its problems, against parallel steps, sweeps over W, and seconds."""

from __future__ import annotations

import numpy as np

import forestmix as fmx
from forestmix.paper.curves import Panel, run_race
from forestmix.paper.draws import draw_digits
from forestmix.paper.figure2 import paper_algorithm
from forestmix.paper.problems import RidgeProblem, region_problem, window_problem
from forestmix.paper.settings import Meter, Settings

#: A run ends when every image is within this relative gap, or after so many sweeps for each iteration of Figure 2.
TARGET = 1e-3
SWEEPS = 5
#: Groups that hold every eighth latent: neighbours, which overlap most, are in different groups.
INTERLEAVED = 8

FM = "FM (paper)"
ELBO = "FM on the ELBO"
ACCELERATED = "FM + conjugate gradients"
REGIONS = "FM in 16 regions"
GROUPS = f"FM in {INTERLEAVED} groups"
BLOCKS = "blocks"
CAVI = "cyclic CAVI"
SHUFFLED = "random-order CAVI"


def run_races(settings: Settings, meter: Meter | None = None) -> tuple[Panel, ...]:
    """Run every algorithm on the region problem and on the windows of side 7, with the images of the first seed."""
    meter = meter or Meter()
    draw = draw_digits(settings.seed, settings.images, settings.full)
    problems = {"regions": region_problem(draw), "windows7": window_problem(draw, 7)}
    contenders = {name: _algorithms(problem) for name, problem in problems.items()}
    limit = SWEEPS * settings.iterations
    meter.begin("Beyond the paper", limit * sum(map(len, contenders.values())))
    races = []
    for name, problem in problems.items():
        curves = [run_race(problem, label, run, limit, TARGET, meter) for label, run in contenders[name].items()]
        races.append(Panel(name, f"{problem.title}, {problem.n_latent:,} latents", tuple(curves)))
    meter.end()
    return tuple(races)


def _algorithms(problem: RidgeProblem) -> dict[str, object]:
    m = problem.n_latent
    interleaved = [np.arange(first, m, INTERLEAVED) for first in range(INTERLEAVED)]
    algorithms: dict[str, object] = {
        FM: paper_algorithm(),
        ELBO: fmx.ForestMixture(objective="elbo", accelerate=False),
        ACCELERATED: fmx.ForestMixture(objective="elbo", accelerate="cg"),
        GROUPS: fmx.ForestMixture(objective="elbo", groups=interleaved),
    }
    if problem.blocks is not None:  # one group after another, and one variable of every block at once
        algorithms[REGIONS] = fmx.ForestMixture(objective="elbo", groups=problem.blocks)
        algorithms[BLOCKS] = fmx.BlockCoordinate(problem.blocks)
    return algorithms | {CAVI: fmx.CAVI(), SHUFFLED: fmx.CAVI("random", seed=problem.draw.seed)}
