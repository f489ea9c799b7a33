"""Where two layers meet: what rows tell their parents, for each pair of families."""

from forestmix.problem.interfaces.base import Above, Interface, with_columns
from forestmix.problem.interfaces.choose import check_latents, has_gaussian_latents, make_interfaces
from forestmix.problem.interfaces.count_parents import CountParents, RowAuxiliary
from forestmix.problem.interfaces.exact import ExactCounts
from forestmix.problem.interfaces.gaussian_parents import GaussianParents
from forestmix.problem.interfaces.gaussian_rows import GaussianRows
from forestmix.problem.interfaces.stack import LayeredFactors, Stack

__all__ = [
    "Above",
    "CountParents",
    "ExactCounts",
    "GaussianParents",
    "GaussianRows",
    "Interface",
    "LayeredFactors",
    "RowAuxiliary",
    "Stack",
    "check_latents",
    "has_gaussian_latents",
    "make_interfaces",
    "with_columns",
]
