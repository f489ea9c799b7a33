"""Codecs of weights: W inside the file as it is stored, or by reference with its checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import host
from forestmix.errors import ArgumentError, ForestmixError
from forestmix.files.codec import Codec, record
from forestmix.weights import Convolution, DenseWeights, SparseColumnWeights, SparseWeights, Weights, as_weights
from forestmix.weights.absent import AbsentWeights
from forestmix.weights.arrays import ArrayWeights
from forestmix.weights.chunked import ChunkedWeights


def _dense(weights: DenseWeights) -> dict[str, Any]:
    """Return the array by rows, and whether it stands by columns in memory, which products depend on in rounding."""
    array, by_columns = weights.array, not weights.array.flags.c_contiguous and weights.array.flags.f_contiguous
    return {"array": np.asarray(array.T if by_columns else array), "by_columns": bool(by_columns)}


def _built_dense(given: dict[str, Any]) -> DenseWeights:
    return DenseWeights(given["array"].T if given["by_columns"] else given["array"])


def sparse_fields(matrix: Any) -> dict[str, Any]:
    """Return the arrays of a matrix in CSR."""
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return {**arrays, "shape": [int(n) for n in matrix.shape]}


def built_sparse(given: dict[str, Any]) -> scipy.sparse.csr_array:
    """Return the matrix by rows, with its indices checked: kernels read them without a check."""
    parts = (given["data"], given["indices"], given["indptr"])
    matrix = scipy.sparse.csr_array(parts, shape=tuple(given["shape"]))
    matrix.check_format(full_check=True)
    return matrix


def _no_chunks(weights: ChunkedWeights) -> dict[str, Any]:
    raise ForestmixError(
        f"A file cannot hold W in chunks, {weights!r}: it may be larger than memory. Keep the numbers by "
        "to_xarray().to_netcdf(path), or give infer a checkpoint, from which the same call returns at once."
    )


INSIDE = (
    Codec("dense weights", DenseWeights, _dense, _built_dense),
    Codec(
        "sparse weights", SparseWeights, lambda one: sparse_fields(one.matrix),
        lambda given: SparseWeights(built_sparse(given)),
    ),
    Codec(
        "sparse weights by columns", SparseColumnWeights, lambda one: sparse_fields(one.matrix.T),
        lambda given: SparseColumnWeights(built_sparse(given).T),
    ),
    record("convolution", Convolution, ("kernels", "image_shape", "placement")),
    Codec(
        "weights of an array", ArrayWeights, lambda one: {"array": host(one.array)},
        lambda given: DenseWeights(given["array"]),
    ),
    Codec(
        "absent weights", AbsentWeights, lambda one: {"shape": list(one.shape)},
        lambda given: AbsentWeights(tuple(given["shape"])),
    ),
    Codec("weights in chunks", ChunkedWeights, _no_chunks, dict),
)  # fmt: skip


def checksum(weights: Weights) -> str:
    """Return the SHA-256 of the kind of weights and of the arrays that hold them."""
    codec = next(codec for codec in INSIDE if isinstance(weights, codec.type))
    kind = "dense weights" if codec.type is ArrayWeights else codec.kind
    hashed = hashlib.sha256(kind.encode())
    for name, value in codec.fields(weights).items():
        if name == "by_columns":
            continue
        if isinstance(value, np.ndarray):
            hashed.update(f"{name} {(value.dtype.name, value.shape)}".encode())
            hashed.update(np.ascontiguousarray(value).tobytes())
        else:
            hashed.update(f"{name} {list(value) if isinstance(value, tuple) else value}".encode())
    return hashed.hexdigest()


class Given:
    """The weights that are given to ``load`` for a file that has them by reference, found by their checksums."""

    def __init__(self, weights: Any) -> None:
        several = weights if isinstance(weights, list | tuple) else [weights]
        self.weights: Sequence[Weights] = [] if weights is None else [as_weights(W) for W in several]
        self._by_checksum = {checksum(W): W for W in self.weights}

    def find(self, fields: dict[str, Any]) -> Weights:
        """Return the weights that a file refers to."""
        shape = " x ".join(map(str, fields["shape"]))
        if not self.weights:
            raise ArgumentError(
                f"weights must be given: the file refers to weights W of {shape} entries in {fields['dtype']} without "
                "holding them. Use load(path, weights=W), or a list of them for a deep model."
            )
        if fields["checksum"] not in self._by_checksum:
            got = ", ".join(f"{one.shape[0]} x {one.shape[1]} in {one.dtype.name}" for one in self.weights)
            raise ArgumentError(
                f"weights must be those that the file was saved with, {shape} in {fields['dtype']}, entry by entry and "
                f"stored the same way; got {got} with another checksum."
            )
        return self._by_checksum[fields["checksum"]]


def _reference(weights: Weights) -> dict[str, Any]:
    return {"checksum": checksum(weights), "shape": [int(n) for n in weights.shape], "dtype": weights.dtype.name}


def codecs(reference: bool = False, given: Any = None) -> tuple[Codec, ...]:
    """Return the codecs of weights: to write them or a reference, to read both. A matrix of SciPy's is written."""
    find, matrix = Given(given).find, Codec("sparse matrix", scipy.sparse.csr_array, sparse_fields, built_sparse)
    if reference:
        return (matrix, *(Codec("weights by reference", codec.type, _reference, find) for codec in INSIDE))
    return (matrix, *INSIDE, Codec("weights by reference", Weights, _reference, find))
