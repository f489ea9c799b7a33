"""Array libraries that engines are tested with; one that is not installed is skipped."""

import array_api_compat
import numpy as np
import pytest

LIBRARIES = ("numpy", "array_api_strict", "torch", "jax")


def namespace(name):
    """Return the functions of a library, as the array API standard names them."""
    library = pytest.importorskip(name)
    if name == "jax":
        library.config.update("jax_enable_x64", True)
        library = library.numpy
    return array_api_compat.array_namespace(library.asarray(np.zeros(1)))


def numpy_of(array):
    """Return an array as one of NumPy."""
    return np.asarray(array)
