"""Where two layers meet: what rows tell their parents, for each pair of families."""

from forestmix.interfaces.base import Above, Interface, with_columns
from forestmix.interfaces.choose import check_latents, has_flat_form, make_interfaces
from forestmix.interfaces.count_parents import CountParents, RowAuxiliary
from forestmix.interfaces.exact import ExactCounts
from forestmix.interfaces.gaussian_parents import GaussianParents
from forestmix.interfaces.gaussian_rows import GaussianRows
from forestmix.interfaces.stack import LayeredFactors, Stack

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
    "has_flat_form",
    "make_interfaces",
    "with_columns",
]
