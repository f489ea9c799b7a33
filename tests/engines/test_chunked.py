"""Weights in chunks of rows, in memory and in files: the answers of one matrix, and no more memory than a chunk."""

import itertools
import os
import pickle
import threading

import numpy as np
import pytest
from scipy import sparse

import forestmix as fmx
from forestmix.engines.choice import choose_engine
from forestmix.engines.chunked import ChunkedEngine
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.protocol import Spread, Statistics, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.inference.progress import ProgressBar
from forestmix.weights import ChunkedWeights, as_weights, convert
from forestmix.weights.chunks import READING, ChunkShape, StreamedChunks
from support.engine_cases import DATA, FAMILIES, STORAGE, case, families

INNER = {"reference": ReferenceEngine(), "compiled": CompiledEngine()}
CUTS = (0, 2, 3, 9)


def chunks(W, storage="dense", cuts=CUTS):
    return [STORAGE[storage](W[a:b]) for a, b in itertools.pairwise(cuts)]


def in_chunks(layer, W, storage):
    return fmx.Layer(layer.family, chunks(W, storage), layer.bias)


def on_disk(W, storage, folder):
    """Return W streamed from files, a few rows at a time."""
    if storage == "dense":
        np.save(folder / "W.npy", W)
        return ChunkedWeights.open(folder / "W.npy", chunk_bytes=2 * W[0].nbytes)
    matrix = sparse.csr_array(W)
    paths = [folder / f"{name}.npy" for name in ("indptr", "indices", "data")]
    for path in paths:
        np.save(path, getattr(matrix, path.stem))
    return ChunkedWeights.open_csr(*paths, columns=W.shape[1], chunk_bytes=100)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("inner", INNER)
def test_statistics_are_those_of_one_matrix(inner, storage, family, data):
    layer, seen, q, W = case(family, storage, data)
    parted, engine, plain = in_chunks(layer, W, storage), ChunkedEngine(INNER[inner]), ReferenceEngine()
    rows, whole = engine.observe(parted, seen), plain.observe(layer, seen)
    given = 0.1 + np.random.default_rng(0).random((1, layer.size))
    for spread in (*Spread, given):
        sums, terms = engine.statistics(parted, rows, q, Want.ALL, spread)
        right, expected = plain.statistics(layer, whole, q, Want.ALL, spread)
        for field in Statistics._fields:
            np.testing.assert_allclose(getattr(sums, field), getattr(right, field), rtol=1e-10, atol=1e-12)
        for got, term in zip(terms, expected, strict=True):
            assert (len(got), got.shape[1], got.dtype) == (got.shape[0], layer.size, term.dtype)
            np.testing.assert_allclose(got, np.broadcast_to(term, got.shape), rtol=1e-10, atol=1e-12)
        # Handed back, a term of the rows is used where it is; as an array it gives the same.
        for kappa in (terms.kappa, terms.kappa[...]):
            for got, product in zip(
                engine.normal_product(parted, kappa, q.mean),
                plain.normal_product(layer, expected.kappa, q.mean),
                strict=True,
            ):
                np.testing.assert_allclose(got, product, rtol=1e-10, atol=1e-11)
            for got, product in zip(
                engine.curvatures(parted, kappa, q.sd, Want.ALL),
                plain.curvatures(layer, expected.kappa, q.sd, Want.ALL),
                strict=True,
            ):
                np.testing.assert_allclose(got, product, rtol=1e-10, atol=1e-11)


def same(found, right, tolerance=1e-10):
    assert found.converged
    assert right.converged
    np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.objective, right.objective, rtol=1e-12)


def problem(family, seed=1, n=24, m=5):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.7) / 2
    model = fmx.DEF(fmx.Layer(families(n)[family], W, 0.2))
    return model, W, model.sample(rng).x


@pytest.mark.parametrize("objective", ["elbo", "fm"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("storage", STORAGE)
def test_answers_are_those_of_one_matrix(storage, family, objective):
    model, W, x = problem(family)
    parted = fmx.DEF(fmx.Layer(model.layers[0].family, chunks(W, storage, (0, 7, 8, 24)), 0.2))
    options = {"objective": objective, "tol": 1e-12}
    same(fmx.infer(parted, x, **options), fmx.infer(model, x, **options))


@pytest.mark.parametrize("accelerate", ["cg", "direct", False])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_every_kind_of_steps(family, accelerate):
    model, W, x = problem(family)
    parted = fmx.DEF(fmx.Layer(model.layers[0].family, chunks(W, cuts=(0, 5, 24)), 0.2))
    options = {"accelerate": accelerate, "tol": 1e-12}
    same(fmx.infer(parted, x, **options), fmx.infer(model, x, **options))


def test_more_latents_than_rows_and_a_batch_with_missing_entries():
    rng = np.random.default_rng(4)
    W = rng.standard_normal((6, 9))
    for family in (fmx.Gaussian(0.7), fmx.Poisson()):
        model, parted = (fmx.DEF(fmx.Layer(family, given)) for given in (W, chunks(W, cuts=(0, 4, 6))))
        x = model.sample(rng, size=4).x
        x[1, 2], x[3, :3] = np.nan, np.nan
        found, right = (fmx.infer(one, x, tol=1e-12) for one in (parted, model))
        assert found.converged.all()
        np.testing.assert_allclose(found.mean, right.mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.sd, right.sd, rtol=0, atol=1e-10)


def test_a_deep_model_whose_lowest_weights_are_in_chunks():
    rng = np.random.default_rng(5)
    W, above = rng.standard_normal((12, 4)), rng.standard_normal((4, 2))
    deep, parted = (
        fmx.DEF(fmx.Layer(fmx.Gaussian(0.5), given), fmx.Layer(fmx.Gaussian(1.0), above))
        for given in (W, chunks(W, cuts=(0, 5, 12)))
    )
    x = deep.sample(rng).x
    found, right = fmx.infer(parted, x, tol=1e-12), fmx.infer(deep, x, tol=1e-12)
    for one, other in zip(found.layers, right.layers, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("storage", STORAGE)
def test_files_are_streamed(tmp_path, storage, family):
    model, W, x = problem(family)
    streamed = fmx.DEF(fmx.Layer(model.layers[0].family, on_disk(W, storage, tmp_path), 0.2))
    assert len(streamed.layers[0].weights.chunks.slices) > 3
    same(fmx.infer(streamed, x, tol=1e-12), fmx.infer(model, x, tol=1e-12))


def test_a_part_of_a_memory_map_is_read_from_its_own_place(tmp_path, monkeypatch):
    W = np.arange(60.0).reshape(12, 5)
    np.save(tmp_path / "W.npy", W)
    mapped = np.load(tmp_path / "W.npy", mmap_mode="r")
    assert as_weights(mapped[3:]).chunks is None
    monkeypatch.setattr(convert, "LARGE_PART", 0.0)
    part = as_weights(mapped[3:])
    assert part.chunks is not None
    np.testing.assert_array_equal(part.toarray(), W[3:])
    assert repr(part) == "ChunkedWeights(9 x 5, float64, 1 chunks of rows)"


def test_a_mapped_file_is_pickled_by_its_name(tmp_path):
    np.save(tmp_path / "W.npy", np.arange(60.0).reshape(12, 5))
    weights = ChunkedWeights.open(tmp_path / "W.npy", chunk_bytes=100)
    before = weights.forward(np.ones(5))
    content = pickle.dumps(weights)
    assert len(content) < 5000
    np.testing.assert_array_equal(pickle.loads(content).forward(np.ones(5)), before)


def test_a_mapped_file_that_was_cut_short(tmp_path):
    np.save(tmp_path / "W.npy", np.ones((1000, 5)))
    weights = ChunkedWeights.open(tmp_path / "W.npy")
    os.truncate(tmp_path / "W.npy", 20_000)
    with pytest.raises(ArgumentError, match=r"W must be whole; the file .*W.npy ends before entry 5000"):
        weights.forward(np.ones(5))


def test_entries_of_a_mapped_csr_that_are_not_in_order(tmp_path):
    """They are put in order in every pass, though they are checked in the first one only."""
    parts = {"indptr": np.array([0, 3, 4]), "indices": np.array([2, 0, 2, 1]), "data": np.array([1.0, 2.0, 3.0, 4.0])}
    paths = [tmp_path / f"{name}.npy" for name in parts]
    for path in paths:
        np.save(path, parts[path.stem])
    weights = ChunkedWeights.open_csr(*paths, columns=3)
    for _ in range(3):
        np.testing.assert_array_equal(weights.toarray(), [[2.0, 0.0, 4.0], [0.0, 4.0, 0.0]])


def test_which_engine_runs_chunks():
    small, large = (fmx.Layer(fmx.Gaussian(1.0), [np.ones((size, size))] * 2) for size in (2, 600))
    assert choose_engine("auto", fmx.DEF(small), 1).inner.name == "reference"
    assert choose_engine("auto", fmx.DEF(large), 1).inner.name == "compiled"
    assert choose_engine("compiled", fmx.DEF(small), 1).inner.name == "compiled"
    with pytest.raises(ArgumentError, match=r"engine must offer coordinate sweeps.*'chunked' does not"):
        fmx.infer(fmx.DEF(small), np.ones(4), "cavi")


def test_wrong_chunks(tmp_path):
    with pytest.raises(ArgumentError, match=r"same columns and precision; chunk 0 has 2 .* chunk 1 has 3"):
        as_weights([np.ones((2, 2)), np.ones((2, 3))])
    with pytest.raises(ArgumentError, match=r"same columns and precision.*chunk 1 has 2 of float32"):
        as_weights([np.ones((2, 2)), np.ones((2, 2), np.float32)])
    np.save(tmp_path / "W.npy", np.ones((4, 2), int))
    with pytest.raises(ArgumentError, match="dtype of W must be float32 or float64"):
        ChunkedWeights.open(tmp_path / "W.npy")
    W = np.ones((4, 2))
    W[3, 1] = np.nan
    np.save(tmp_path / "W.npy", W)
    weights = ChunkedWeights.open(tmp_path / "W.npy", chunk_bytes=32)
    with pytest.raises(ArgumentError, match=r"begins with row 2: W must be finite.*at index \(1, 1\)"):
        weights.forward(np.ones(2))
    with pytest.raises(ArgumentError, match="indices and data must have"):
        ChunkedWeights.open_csr(np.array([0, 2]), np.array([0]), np.array([1.0]), 2)
    for indptr in ([0, 2, 1, 1], [1, 1], [[0, 1]], []):
        with pytest.raises(ArgumentError, match="indptr must be one row of integers that begin with 0 and never fall"):
            ChunkedWeights.open_csr(np.array(indptr), np.array([0]), np.array([1.0]), 2)
    weights = ChunkedWeights.open_csr(np.array([0, 1]), np.array([2]), np.array([1.0]), columns=2)
    with pytest.raises(ArgumentError, match=r"begins with row 0: W must have all entries within its 1 rows and 2 col"):
        weights.forward(np.ones(2))


def test_what_is_no_matrix_in_a_file(tmp_path):
    np.save(tmp_path / "W.npy", np.asfortranarray(np.ones((4, 2))))
    with pytest.raises(ArgumentError, match=r"W must be a memory map of a file in C order: np.save\(path, np.asc"):
        ChunkedWeights.open(tmp_path / "W.npy")
    np.savez(tmp_path / "W.npz", W=np.ones((4, 2)))
    with pytest.raises(ArgumentError, match=r"W must be the path of an .npy file, a memory map, or .*; got .*Path"):
        ChunkedWeights.open(tmp_path / "W.npz")
    with pytest.raises(ArgumentError, match=r"W must be the path of an .npy file.*; got \[\[1.0\]\]"):
        ChunkedWeights.open([[1.0]])


class Slow:
    """A chunk that says when it is read."""

    def __init__(self, k, started):
        self.k, self.started, self.shape = k, started, ChunkShape(2, 3, np.dtype(float))

    def load(self, *, trusted):
        self.started[self.k].set()
        return as_weights(np.full((2, 3), float(self.k)))


def test_the_next_chunk_is_read_while_one_is_computed_with():
    started = [threading.Event() for _ in range(4)]
    chunks = StreamedChunks([Slow(k, started) for k in range(4)])

    def compute(weights):
        k = int(weights.toarray()[0, 0])
        return k == 3 or started[k + 1].wait(10)

    assert chunks.map(compute) == [True] * 4


def test_progress_says_how_much_of_a_pass_is_read():
    seen = []
    chunks = StreamedChunks([Slow(k, [threading.Event() for _ in range(4)]) for k in range(4)])
    token = READING.set(lambda done, total: seen.append((done, total)))
    chunks.map(lambda weights: None)
    READING.reset(token)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with ProgressBar("fm", 1e-6) as bar:
        bar.update(3, np.array([-2.0]), np.array([0.1]), np.arange(1))
        chunks.map(lambda weights: bar.bar.tasks[0].description)
        assert bar.bar.tasks[0].description.endswith("gradient 1.0e-01, 100 % of W read")
    assert READING.get() is None


def test_what_is_stored_in_chunks_is_read_in_whole_ones(tmp_path):
    import h5py

    W = np.arange(120.0).reshape(24, 5)
    with h5py.File(tmp_path / "W.h5", "w") as file:
        stored = file.create_dataset("W", data=W, chunks=(7, 5))
        weights = ChunkedWeights.open(stored, chunk_bytes=3 * 40)
        assert [part.stop - part.start for part in weights.chunks.slices] == [7, 7, 7, 3]
        np.testing.assert_array_equal(weights.toarray(), W)


@pytest.mark.parametrize("library", ["h5py", "zarr"])
def test_the_arrays_of_a_csr_matrix_in_other_libraries(library, tmp_path):
    module = pytest.importorskip(library)
    matrix = sparse.random_array((50, 9), density=0.3, rng=np.random.default_rng(0)).tocsr()
    file = (
        module.File(tmp_path / "W.h5", "w") if library == "h5py" else module.open_group(str(tmp_path / "W"), mode="w")
    )
    create = file.create_dataset if library == "h5py" else file.create_array
    parts = [create(name, data=getattr(matrix, name)) for name in ("indptr", "indices", "data")]
    weights = ChunkedWeights.open_csr(*parts, columns=9, chunk_bytes=200)
    assert len(weights.chunks.slices) > 4
    np.testing.assert_array_equal(weights.toarray(), matrix.toarray())
    np.testing.assert_allclose(weights.adjoint(np.ones(50)), matrix.T @ np.ones(50))
    with pytest.raises(ArgumentError, match=r"indices and data must have indptr\[-1\] = 135 entries"):
        ChunkedWeights.open_csr(parts[0], parts[1], parts[2][:5], columns=9)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_case_weights_go_with_their_chunk(family):
    model, W, x = problem(family)
    weight = np.random.default_rng(2).integers(0, 4, len(W)).astype(float)
    whole, parted = (
        fmx.DEF(fmx.Layer(model.layers[0].family, given, 0.2, case_weights=weight))
        for given in (W, chunks(W, cuts=(0, 7, 8, 24)))
    )
    same(fmx.infer(parted, x, tol=1e-12), fmx.infer(whole, x, tol=1e-12))
