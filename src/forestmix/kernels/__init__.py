"""Compiled passes over arrays (Numba), compiled at first use and cached.

The kernels are pure arithmetic: they take W as a dense array or as the arrays of a canonical CSC or CSR matrix, write
into arrays made by their caller, and assume that their arguments were checked. ``fastmath`` is for dense loops only: on
index gathers it is slower (design, part 4).
"""

from forestmix.kernels.climb import climb_blocks, climb_groups, climb_ones, row_states
from forestmix.kernels.coordinate import relax_blocks, relax_groups
from forestmix.kernels.greedy import climb_greedy, relax_greedy
from forestmix.kernels.groups import group_curvature, group_spread_squared

__all__ = [
    "climb_blocks", "climb_greedy", "climb_groups", "climb_ones", "group_curvature", "group_spread_squared",
    "relax_blocks", "relax_greedy", "relax_groups", "row_states",
]  # fmt: skip
