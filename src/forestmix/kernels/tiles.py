"""Products of four rows of W at a time, the innermost loops of the dense passes.

Four rows share one reading of the vectors they are multiplied with, which is what keeps a pass near the speed at which
W itself can be read. ``reassoc`` lets sums be taken in vector registers; NaN and infinity keep their meaning, since a
step that overflows must be seen and refused.
"""

from __future__ import annotations

from numba import njit

#: What the compiler may assume about sums; not all of ``fastmath``, which would assume that nothing overflows.
FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(fastmath=FAST, nogil=True)
def forward_mean(a, b, c, d, mean, out):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` of four rows into ``out[0]``."""
    m0 = m1 = m2 = m3 = mean.dtype.type(0)
    for j in range(mean.shape[0]):
        v = mean[j]
        m0 += a[j] * v
        m1 += b[j] * v
        m2 += c[j] * v
        m3 += d[j] * v
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = m0, m1, m2, m3


@njit(fastmath=FAST, nogil=True)
def forward_absolute(a, b, c, d, mean, sd, out):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``|w| . sd`` of four rows into the first two rows of ``out``."""
    m0 = m1 = m2 = m3 = s0 = s1 = s2 = s3 = mean.dtype.type(0)
    for j in range(mean.shape[0]):
        v, sigma = mean[j], sd[j]
        m0 += a[j] * v
        s0 += abs(a[j]) * sigma
        m1 += b[j] * v
        s1 += abs(b[j]) * sigma
        m2 += c[j] * v
        s2 += abs(c[j]) * sigma
        m3 += d[j] * v
        s3 += abs(d[j]) * sigma
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = m0, m1, m2, m3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = s0, s1, s2, s3


@njit(fastmath=FAST, nogil=True)
def forward_squared(a, b, c, d, mean, sd, out):  # type: ignore[no-untyped-def]
    """Write ``w . mean`` and ``w^2 . sd^2`` of four rows into the first and last row of ``out``."""
    m0 = m1 = m2 = m3 = v0 = v1 = v2 = v3 = mean.dtype.type(0)
    for j in range(mean.shape[0]):
        v, sigma = mean[j], sd[j]
        m0 += a[j] * v
        v0 += (a[j] * sigma) * (a[j] * sigma)
        m1 += b[j] * v
        v1 += (b[j] * sigma) * (b[j] * sigma)
        m2 += c[j] * v
        v2 += (c[j] * sigma) * (c[j] * sigma)
        m3 += d[j] * v
        v3 += (d[j] * sigma) * (d[j] * sigma)
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = m0, m1, m2, m3
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = v0, v1, v2, v3


@njit(fastmath=FAST, nogil=True)
def forward_spreads(a, b, c, d, mean, sd, out):  # type: ignore[no-untyped-def]
    """Write ``w . mean``, ``|w| . sd`` and ``w^2 . sd^2`` of four rows into the rows of ``out``."""
    m0 = m1 = m2 = m3 = s0 = s1 = s2 = s3 = v0 = v1 = v2 = v3 = mean.dtype.type(0)
    for j in range(mean.shape[0]):
        v, sigma = mean[j], sd[j]
        t = abs(a[j]) * sigma
        m0 += a[j] * v
        s0 += t
        v0 += t * t
        t = abs(b[j]) * sigma
        m1 += b[j] * v
        s1 += t
        v1 += t * t
        t = abs(c[j]) * sigma
        m2 += c[j] * v
        s2 += t
        v2 += t * t
        t = abs(d[j]) * sigma
        m3 += d[j] * v
        s3 += t
        v3 += t * t
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = m0, m1, m2, m3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = s0, s1, s2, s3
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = v0, v1, v2, v3


@njit(fastmath=FAST, nogil=True)
def adjoint_mean(a, b, c, d, factor, gradient):  # type: ignore[no-untyped-def]
    """Add four rows times ``factor[0]`` to the gradient."""
    e0, e1, e2, e3 = factor[0, 0], factor[0, 1], factor[0, 2], factor[0, 3]
    for j in range(gradient.shape[0]):
        gradient[j] += a[j] * e0 + b[j] * e1 + c[j] * e2 + d[j] * e3


@njit(fastmath=FAST, nogil=True)
def adjoint_absolute(a, b, c, d, factor, gradient, absolute):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``|w| factor[1]`` to the forest mixture curvature."""
    e0, e1, e2, e3 = factor[0, 0], factor[0, 1], factor[0, 2], factor[0, 3]
    k0, k1, k2, k3 = factor[1, 0], factor[1, 1], factor[1, 2], factor[1, 3]
    for j in range(gradient.shape[0]):
        w0, w1, w2, w3 = a[j], b[j], c[j], d[j]
        gradient[j] += w0 * e0 + w1 * e1 + w2 * e2 + w3 * e3
        absolute[j] += abs(w0) * k0 + abs(w1) * k1 + abs(w2) * k2 + abs(w3) * k3


@njit(fastmath=FAST, nogil=True)
def adjoint_squared(a, b, c, d, factor, gradient, squared):  # type: ignore[no-untyped-def]
    """Add ``w e`` to the gradient and ``w^2 factor[2]`` to the exact information."""
    e0, e1, e2, e3 = factor[0, 0], factor[0, 1], factor[0, 2], factor[0, 3]
    k0, k1, k2, k3 = factor[2, 0], factor[2, 1], factor[2, 2], factor[2, 3]
    for j in range(gradient.shape[0]):
        w0, w1, w2, w3 = a[j], b[j], c[j], d[j]
        gradient[j] += w0 * e0 + w1 * e1 + w2 * e2 + w3 * e3
        squared[j] += w0 * w0 * k0 + w1 * w1 * k1 + w2 * w2 * k2 + w3 * w3 * k3


@njit(fastmath=FAST, nogil=True)
def adjoint_both(a, b, c, d, factor, gradient, absolute, squared):  # type: ignore[no-untyped-def]
    """Add to the gradient and to both curvatures."""
    e0, e1, e2, e3 = factor[0, 0], factor[0, 1], factor[0, 2], factor[0, 3]
    s0, s1, s2, s3 = factor[1, 0], factor[1, 1], factor[1, 2], factor[1, 3]
    k0, k1, k2, k3 = factor[2, 0], factor[2, 1], factor[2, 2], factor[2, 3]
    for j in range(gradient.shape[0]):
        w0, w1, w2, w3 = a[j], b[j], c[j], d[j]
        gradient[j] += w0 * e0 + w1 * e1 + w2 * e2 + w3 * e3
        absolute[j] += abs(w0) * s0 + abs(w1) * s1 + abs(w2) * s2 + abs(w3) * s3
        squared[j] += w0 * w0 * k0 + w1 * w1 * k1 + w2 * w2 * k2 + w3 * w3 * k3


@njit(fastmath=FAST, nogil=True)
def reduce_three(a, b, c, d, error, absolute, squared, out):  # type: ignore[no-untyped-def]
    """Write ``w . error``, ``|w| . absolute`` and ``w^2 . squared`` of four columns into the rows of ``out``."""
    e0 = e1 = e2 = e3 = s0 = s1 = s2 = s3 = k0 = k1 = k2 = k3 = error.dtype.type(0)
    for i in range(error.shape[0]):
        e, s, k = error[i], absolute[i], squared[i]
        w0, w1, w2, w3 = a[i], b[i], c[i], d[i]
        e0 += w0 * e
        e1 += w1 * e
        e2 += w2 * e
        e3 += w3 * e
        s0 += abs(w0) * s
        s1 += abs(w1) * s
        s2 += abs(w2) * s
        s3 += abs(w3) * s
        k0 += w0 * w0 * k
        k1 += w1 * w1 * k
        k2 += w2 * w2 * k
        k3 += w3 * w3 * k
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = e0, e1, e2, e3
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = s0, s1, s2, s3
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = k0, k1, k2, k3
