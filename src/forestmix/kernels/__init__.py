"""Compiled passes over arrays (Numba): pure arithmetic on columns of W, compiled at first use and cached.

The kernels take W as the three arrays of a canonical CSC matrix and write into arrays made by their caller. They
assume that their arguments were checked. ``fastmath`` stays off: on index gathers it is slower (design, part 4).
"""

from forestmix.kernels.coordinate import relax_blocks, relax_greedy, relax_groups
from forestmix.kernels.groups import group_curvature, group_spread_squared

__all__ = ["group_curvature", "group_spread_squared", "relax_blocks", "relax_greedy", "relax_groups"]
