"""Linear algebra with a hundred digits, on NumPy arrays of ``Decimal``, quick up to some tens of unknowns."""

from decimal import Context, Decimal, localcontext

import numpy as np

#: Precisions of a posterior range over some 1e40, and a Cholesky factor loses as many digits.
DIGITS = 100
LONG = np.longdouble


def precision():
    """Return a context manager with that many digits."""
    return localcontext(Context(prec=DIGITS))


def exact(values):
    """Return an array of Decimals of exactly these numbers; a long double is the sum of two floats."""
    array = np.asarray(values)
    high = array.astype(np.float64)
    low = (array - high).astype(np.float64)
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        out[place] = Decimal(float(high[place])) + Decimal(float(low[place]))
    return out


def rounded(values):
    """Return long doubles nearest to an array of Decimals."""
    array = np.asarray(values, object)
    out = np.empty(array.shape, LONG)
    for place in np.ndindex(array.shape):
        high = float(array[place])
        # Beyond the range of floats there is no rest to add.
        out[place] = LONG(high) if np.isinf(high) else LONG(high) + LONG(float(array[place] - Decimal(high)))
    return out


def cholesky(matrix):
    """Return the lower triangular factor of a positive definite matrix of Decimals; raise if it is not."""
    size = len(matrix)
    factor = np.full((size, size), Decimal(0), object)
    for j in range(size):
        rest = matrix[j:, j] - factor[j:, :j] @ factor[j, :j] if j else matrix[j:, j]
        if not rest[0] > 0:
            raise ArithmeticError("The matrix is not positive definite.")
        factor[j:, j] = rest / rest[0].sqrt()
    return factor


def solve(factor, right):
    """Return the solution with the matrix whose Cholesky factor this is; ``right`` is a vector or a matrix."""
    size, solution = len(factor), np.array(right, object)
    for j in range(size):
        solution[j] = (solution[j] - (factor[j, :j] @ solution[:j] if j else 0)) / factor[j, j]
    for j in reversed(range(size)):
        below = factor[j + 1 :, j] @ solution[j + 1 :] if j + 1 < size else 0
        solution[j] = (solution[j] - below) / factor[j, j]
    return solution


def inverse(factor):
    """Return the inverse of the matrix whose Cholesky factor this is."""
    return solve(factor, exact(np.eye(len(factor))))
