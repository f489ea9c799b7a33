"""Compiled passes over arrays (Numba), compiled at first use and cached.

The kernels are pure arithmetic: they take W as a dense array or as the arrays of a canonical CSC or CSR matrix, write
into arrays made by their caller, and assume that their arguments were checked. ``fastmath`` is for dense loops only: on
index gathers it is slower (design, part 4). Modules are imported where they are used, one by one: the first call of a
process waits for them.
"""
