"""Mean-field factors of latents, one file for each family: moments, divergence, intervals, densities."""

from forestmix.families import Bernoulli, Exponential, Gaussian, Laplace, Poisson, SpikeSlab
from forestmix.latents.base import Batch, Factors, take_rows
from forestmix.latents.bernoulli import BernoulliFactors
from forestmix.latents.exponential import ExponentialFactors
from forestmix.latents.gaussian import ArrayFactors, GaussianFactors
from forestmix.latents.laplace import LaplaceFactors
from forestmix.latents.poisson import PoissonFactors
from forestmix.latents.spike_slab import SpikeSlabFactors
from forestmix.latents.tilt import solve_tilt

#: The factors of each family of latents; the conformance tests run over it.
LATENTS: dict[type, type[Factors]] = {
    Gaussian: GaussianFactors,
    Bernoulli: BernoulliFactors,
    Poisson: PoissonFactors,
    Exponential: ExponentialFactors,
    Laplace: LaplaceFactors,
    SpikeSlab: SpikeSlabFactors,
}

__all__ = [
    "LATENTS",
    "ArrayFactors",
    "Batch",
    "BernoulliFactors",
    "ExponentialFactors",
    "Factors",
    "GaussianFactors",
    "LaplaceFactors",
    "PoissonFactors",
    "SpikeSlabFactors",
    "solve_tilt",
    "take_rows",
]
