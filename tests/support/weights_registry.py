"""Every kind of weights, each with the dense matrix that it must equal, built by plain loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from forestmix.weights import (
    ChunkedWeights,
    Convolution,
    DenseWeights,
    LayeredWeights,
    SparseColumnWeights,
    SparseWeights,
    Weights,
    as_weights,
    windows,
)
from forestmix.weights.chunks import MemoryChunks

Case = tuple[Weights, np.ndarray]


def random_matrix(n=7, m=5, dtype=np.float64) -> np.ndarray:
    """Return a matrix with zeros here and there, a row of zeros and a column of zeros."""
    generator = np.random.default_rng(n * 100 + m)
    matrix = generator.normal(size=(n, m)) * (generator.random((n, m)) < 0.7)
    matrix[2] = 0
    matrix[:, 3] = 0
    return matrix.astype(dtype)


def random_kernels(*shape, dtype=np.float64) -> np.ndarray:
    """Return kernels with some zeros, an offset at which all are zero, and, of more than two, a zero one."""
    generator = np.random.default_rng(sum(shape))
    kernels = generator.normal(size=shape) * (generator.random(shape) < 0.8)
    kernels[..., 0, -1] = 0
    if len(shape) > 2 and shape[0] > 2:
        kernels[1] = 0
    return kernels.astype(dtype)


def place_by_loops(kernels: np.ndarray, height: int, width: int, placement: str) -> np.ndarray:
    """Return the matrix of a convolution, entry by entry; ``kernels`` is (K, C, kh, kw)."""
    count, channels, kernel_height, kernel_width = kernels.shape
    if placement == "centred":
        tops = range(-(kernel_height // 2), height - kernel_height // 2)
        lefts = range(-(kernel_width // 2), width - kernel_width // 2)
    else:
        tops = range(1 - kernel_height, height)
        lefts = range(1 - kernel_width, width)
    columns = []
    for k in range(count):
        for top in tops:
            for left in lefts:
                image = np.zeros((channels, height, width), dtype=kernels.dtype)
                for c, a, b in np.ndindex(channels, kernel_height, kernel_width):
                    if 0 <= top + a < height and 0 <= left + b < width:
                        image[c, top + a, left + b] = kernels[k, c, a, b]
                columns.append(image.ravel())
    return np.stack(columns, axis=1)


def dense_with(convert: Callable[[np.ndarray], np.ndarray], dtype=np.float64) -> Case:
    matrix = random_matrix(dtype=dtype)
    return DenseWeights(convert(matrix)), matrix


def sparse_as(convert: Callable, dtype=np.float64) -> Case:
    matrix = random_matrix(dtype=dtype)
    return SparseWeights(convert(matrix)), matrix


def by_columns(convert: Callable, dtype=np.float64) -> Case:
    matrix = random_matrix(dtype=dtype)
    return SparseColumnWeights(convert(matrix)), matrix


def unsorted_columns() -> Case:
    values, indices, ends = np.array([1.0, 2.0, -4.0, 5.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 3, 4])
    expected = np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 5.0], [-3.0, 0.0, 0.0]])
    return SparseColumnWeights(sparse.csc_array((values, indices, ends), shape=(3, 3))), expected


def with_duplicates(kind=sparse.coo_array) -> Case:
    rows, columns = [4, 0, 4, 1, 1, 0], [1, 2, 1, 0, 0, 2]
    values = [1.5, 2.0, -0.5, 3.0, -3.0, 1.0]  # (1, 0) cancels
    expected = np.zeros((5, 3))
    for i, j, value in zip(rows, columns, values, strict=True):
        expected[i, j] += value
    return SparseWeights(kind((values, (rows, columns)), shape=(5, 3))), expected


def with_stored_zeros() -> Case:
    matrix = random_matrix()
    full = sparse.csr_array(np.ones_like(matrix))
    full.data[:] = matrix.ravel()
    return SparseWeights(full), matrix


def unsorted_with_duplicates() -> Case:
    values, indices, ends = np.array([1.0, 2.0, -4.0, 5.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 3, 4])
    expected = np.array([[2.0, 0.0, -3.0], [0.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    return SparseWeights(sparse.csr_array((values, indices, ends), shape=(3, 3))), expected


def small_integers() -> Case:
    """Return int8 duplicates whose sum does not fit int8."""
    matrix = sparse.coo_array((np.array([100, 100], dtype=np.int8), ([0, 0], [1, 1])), shape=(2, 2))
    return SparseWeights(matrix), np.array([[0.0, 200.0], [0.0, 0.0]])


def convolution(*shape, image=(5, 4), placement="centred", dtype=np.float64) -> Case:
    kernels = random_kernels(*shape, dtype=dtype)
    full = kernels.reshape((1,) * (4 - len(shape)) + shape)
    if len(shape) == 3:
        full = kernels[:, np.newaxis]
    return Convolution(kernels, image, placement), place_by_loops(full, *image[-2:], placement)


def window(shape, size, placement="overlapping", dtype=np.float64) -> Case:
    sides = size if isinstance(size, tuple) else (size, size)
    expected = place_by_loops(np.ones((1, 1, *sides), dtype=dtype), *shape, placement)
    return SparseWeights(windows(shape, size, placement, dtype=dtype)), expected


def cut_from_larger(matrix: np.ndarray) -> np.ndarray:
    larger = np.full((matrix.shape[0] + 4, matrix.shape[1] + 3), np.nan, dtype=matrix.dtype)
    larger[2:-2, 1:-2] = matrix
    return larger[2:-2, 1:-2]


def every_second(matrix: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(matrix, 2, axis=0), 2, axis=1)[::2, ::2]


def layered(*builders: Callable[[], Case], sign=-1) -> Case:
    """Return stacked layers and, block by block, the matrix they stand for."""
    parts = [build() for build in builders]
    rows, columns = [p[1].shape[0] for p in parts], [p[1].shape[1] for p in parts]
    expected = np.zeros((sum(rows), sum(columns)), parts[0][1].dtype)
    for k, (_, matrix) in enumerate(parts):
        top, left = sum(rows[:k]), sum(columns[:k])
        expected[top : top + rows[k], left : left + columns[k]] = matrix if k == 0 else sign * matrix
        if k:
            for i in range(rows[k]):
                expected[top + i, left - columns[k - 1] + i] += 1
    return LayeredWeights([part for part, _ in parts], sign), expected


def of_shape(n: int, m: int, kind=DenseWeights, dtype=np.float64) -> Callable[[], Case]:
    def build() -> Case:
        matrix = np.random.default_rng(n * 7 + m).normal(size=(n, m)).astype(dtype)
        matrix[0, 0] = 0
        return kind(sparse.csr_array(matrix) if kind is SparseWeights else matrix), matrix

    return build


def in_chunks(*kinds: Callable, dtype=np.float64) -> Case:
    """Return weights in as many chunks of rows as kinds are given, of one row or more each."""
    matrix = random_matrix(dtype=dtype)
    cuts = np.linspace(0, len(matrix), len(kinds) + 1).astype(int)
    parts = [kind(matrix[a:b]) for kind, a, b in zip(kinds, cuts[:-1], cuts[1:], strict=True)]
    return ChunkedWeights(MemoryChunks([as_weights(part) for part in parts])), matrix


def streamed(chunk_bytes: int) -> Case:
    """Return weights of which chunks are read each time; an array that is sliced stands for a file."""
    matrix = random_matrix()
    return ChunkedWeights.open(matrix, chunk_bytes), matrix


WEIGHTS: dict[str, Callable[[], Case]] = {
    "dense, C order": lambda: dense_with(np.ascontiguousarray),
    "dense, F order": lambda: dense_with(np.asfortranarray),
    "dense, float32": lambda: dense_with(np.ascontiguousarray, np.float32),
    "dense, cut from a larger array": lambda: dense_with(cut_from_larger),
    "dense, cut from a larger array, F order": lambda: dense_with(lambda a: cut_from_larger(a.T).T),
    "dense, every second entry": lambda: dense_with(every_second),
    "dense, backwards": lambda: dense_with(lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]),
    "dense, one row": lambda: (DenseWeights([[1.0, 0.0, -2.0]]), np.array([[1.0, 0.0, -2.0]])),
    "dense, one column": lambda: (DenseWeights([[1], [0], [-2]]), np.array([[1.0], [0.0], [-2.0]])),
    "csr": lambda: sparse_as(sparse.csr_array),
    "csr, float32": lambda: sparse_as(sparse.csr_array, np.float32),
    "csc": lambda: sparse_as(sparse.csc_array),
    "by columns": lambda: by_columns(sparse.csc_array),
    "by columns, csc_matrix": lambda: by_columns(sparse.csc_matrix),
    "by columns, float32": lambda: by_columns(sparse.csc_array, np.float32),
    "by columns, unsorted, with duplicates": unsorted_columns,
    "by columns, all zero": lambda: (SparseColumnWeights(sparse.csc_array((3, 2))), np.zeros((3, 2))),
    "lil": lambda: sparse_as(sparse.lil_array),
    "dok": lambda: sparse_as(sparse.dok_array),
    "dia": lambda: sparse_as(sparse.dia_array),
    "bsr": lambda: sparse_as(lambda a: sparse.bsr_array(a, blocksize=(7, 1))),
    "csr_matrix": lambda: sparse_as(sparse.csr_matrix),
    "csc_matrix": lambda: sparse_as(sparse.csc_matrix),
    "coo_matrix": lambda: with_duplicates(sparse.coo_matrix),
    "coo with duplicates": with_duplicates,
    "csr with stored zeros": with_stored_zeros,
    "csr, unsorted, with duplicates": unsorted_with_duplicates,
    "coo of int8": small_integers,
    "sparse, all zero": lambda: (SparseWeights(sparse.csr_array((3, 2))), np.zeros((3, 2))),
    "convolution, (kh, kw)": lambda: convolution(3, 3),
    "convolution, (K, kh, kw)": lambda: convolution(4, 3, 5),
    "convolution, (K, C, kh, kw)": lambda: convolution(4, 3, 3, 3, image=(3, 6, 4)),
    "convolution, 1 x 1 kernels": lambda: convolution(3, 2, 1, 1),
    "convolution, kernel larger than the image": lambda: convolution(3, 2, 7, 11, image=(3, 2)),
    "convolution, float32": lambda: convolution(3, 2, 3, 5, dtype=np.float32),
    "convolution, all zero": lambda: (Convolution(np.zeros((3, 3)), (2, 2)), np.zeros((4, 4))),
    "convolution, overlapping": lambda: convolution(4, 3, 3, 5, placement="overlapping"),
    "convolution, overlapping, even": lambda: convolution(3, 2, 2, 4, placement="overlapping"),
    "convolution, overlapping, larger": lambda: convolution(2, 6, 5, image=(3, 2), placement="overlapping"),
    "layered, dense": lambda: layered(of_shape(7, 5), of_shape(5, 3), of_shape(3, 2)),
    "layered, one layer": lambda: layered(of_shape(7, 5)),
    "layered, mixed": lambda: layered(of_shape(6, 4, SparseWeights), of_shape(4, 3)),
    "layered, after an entry map": lambda: layered(of_shape(6, 4), of_shape(4, 3), sign=1),
    "layered, float32": lambda: layered(of_shape(6, 4, dtype=np.float32), of_shape(4, 3, dtype=np.float32)),
    "chunks, dense": lambda: in_chunks(np.array, np.asfortranarray),
    "chunks, sparse": lambda: in_chunks(sparse.csr_array, sparse.csc_array, sparse.csr_array),
    "chunks, dense and sparse": lambda: in_chunks(np.array, sparse.csr_array, np.array),
    "chunks, float32": lambda: in_chunks(np.array, sparse.csr_array, dtype=np.float32),
    "chunks, one": lambda: in_chunks(np.array),
    "chunks, streamed": lambda: streamed(100),
    "chunks, streamed row by row": lambda: streamed(1),
    "windows": lambda: window((5, 4), 3),
    "windows, oblong": lambda: window((5, 4), (2, 3)),
    "windows, larger than the image": lambda: window((2, 3), 4),
    "windows, centred": lambda: window((5, 4), 3, "centred"),
    "windows, centred, oblong, float32": lambda: window((4, 5), (1, 3), "centred", np.float32),
}
