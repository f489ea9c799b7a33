"""The matrix of a layer: dense, sparse, or never formed."""

from forestmix.weights.base import Weights
from forestmix.weights.chunked import ChunkedWeights
from forestmix.weights.convert import as_weights
from forestmix.weights.convolution import Convolution
from forestmix.weights.dense import DenseWeights
from forestmix.weights.layered import LayeredWeights
from forestmix.weights.sparse import SparseColumnWeights, SparseWeights
from forestmix.weights.windows import windows

__all__ = [
    "ChunkedWeights",
    "Convolution",
    "DenseWeights",
    "LayeredWeights",
    "SparseColumnWeights",
    "SparseWeights",
    "Weights",
    "as_weights",
    "windows",
]
