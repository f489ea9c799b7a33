"""Files of every kind give the same answer; files that are wrong give one line with their name, and the code 2."""

import json
import pickle
import struct
import sys
import zipfile

import numpy as np
import pandas
import polars
import pytest
import scipy
import xarray
from typer.testing import CliRunner

import forestmix as fmx
from forestmix.cli import app
from forestmix.cli.show import show_rows

N, M = 30, 4
W = np.random.default_rng(0).standard_normal((N, M)).round(3)
X = np.random.default_rng(1).poisson(1.0, N).astype(float)


def forestmix(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def write(folder, kind, name, array):
    """Write an array as a file of one kind, and return how to name it on the command line."""
    path = folder / f"{name}.{kind.split()[-1]}"
    columns = {f"c{j}": column for j, column in enumerate(np.atleast_2d(array.T))}
    if kind == "npy":
        np.save(path, array)
    elif kind == "npz":
        np.savez(path, array)
    elif kind == "several npz":
        np.savez(path, first=np.ones(2), second=array)
        return f"{path}:second"
    elif kind == "sparse npz":
        scipy.sparse.save_npz(path, scipy.sparse.csc_array(np.atleast_2d(array)))
    elif kind == "mtx":
        scipy.io.mmwrite(path, np.atleast_2d(array))
    elif kind in ("csv", "tsv"):
        pandas.DataFrame(columns).to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "plain csv":
        np.savetxt(path, array, delimiter=",")
    elif kind == "parquet":
        polars.DataFrame(columns).write_parquet(path)
    else:
        dimensions = [f"d{k}" for k in range(array.ndim)]
        xarray.Dataset({"values": (dimensions, array)}).to_netcdf(path, engine="h5netcdf")
    return path


KINDS = ("npy", "npz", "several npz", "sparse npz", "mtx", "csv", "plain csv", "tsv", "parquet", "nc")


@pytest.fixture(scope="module")
def expected():
    model = fmx.DEF(fmx.Layer(fmx.Poisson(), W), prior=fmx.Prior(fmx.Gaussian(0.5)))
    return fmx.infer(model, X).posterior()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_same_posterior(tmp_path, kind, expected):
    words = [write(tmp_path, kind, "W", W), write(tmp_path, kind, "x", X)]
    ended = forestmix("infer", *words, "--family", "poisson", "--prior-sd", 0.5, "--json")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)["summary"]
    np.testing.assert_allclose([row["mean"] for row in found], expected.mean, rtol=1e-9)
    np.testing.assert_allclose([row["sd"] for row in found], expected.sd, rtol=1e-9)
    named = kind in ("csv", "tsv", "parquet")
    assert [row["name"] for row in found] == [f"c{j}" if named else f"y[{j}]" for j in range(M)]


def test_missing_entries_and_a_batch(tmp_path):
    batch = np.stack([X, X[::-1]])
    batch[0, 3] = np.nan
    np.save(tmp_path / "W.npy", W)
    lines = [",".join("" if np.isnan(value) else str(value) for value in row) for row in batch]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    ended = forestmix("infer", tmp_path / "W.npy", tmp_path / "x.csv", "--family", "poisson", "--json")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    result = fmx.infer(fmx.DEF(fmx.Layer(fmx.Poisson(), W)), batch)
    np.testing.assert_allclose(found["objective"], result.objective)
    assert found["converged"] == [True, True]


def fortran_header(shape):
    """An npy file whose header promises far more than it holds."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\0" * 64


def bomb(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"")
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02") + 24  # the size in the archive's list
    data[place : place + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)


def bad_files():
    return {
        "objects.npy": lambda p: np.save(p, np.array([{}], object), allow_pickle=True),
        "pickle.npy": lambda p: p.write_bytes(pickle.dumps([1])),
        "huge.npy": lambda p: p.write_bytes(fortran_header((10**9, 10**3))),
        "objects.npz": lambda p: np.savez(p, np.array([{}], object), allow_pickle=True),
        "cut.npz": lambda p: p.write_bytes(b"PK\x03\x04 cut"),
        "bomb.npz": bomb,
        "several.npz": lambda p: np.savez(p, a=np.ones(2), b=np.ones(2)),
        "words.csv": lambda p: p.write_text("a,b\n1,2\n3,four\n"),
        "ragged.csv": lambda p: p.write_text("1,2\n3\n"),
        "empty.csv": lambda p: p.write_text(""),
        "header.csv": lambda p: p.write_text("a,b\n"),
        "latin.csv": lambda p: p.write_bytes(b"\xe9,1\n1,2\n"),
        "wrong.mtx": lambda p: p.write_text("%%MatrixMarket nonsense\n"),
        "wrong.parquet": lambda p: p.write_bytes(b"PAR1 and no more"),
        "wrong.nc": lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n and no more"),
        "complex.npy": lambda p: np.save(p, np.ones((2, 2), complex)),
        "cube.npy": lambda p: np.save(p, np.ones((2, 2, 2))),
        "text.doc": lambda p: p.write_text("1"),
        "folder.npy": lambda p: p.mkdir(),
    }


@pytest.mark.parametrize("name", [*bad_files(), "absent.npy"])
def test_a_wrong_file_is_one_line_with_its_name(tmp_path, name):
    if name in bad_files():
        bad_files()[name](tmp_path / name)
    np.save(tmp_path / "W.npy", W)
    for words in ((tmp_path / name, tmp_path / "W.npy"), (tmp_path / "W.npy", tmp_path / name)):
        ended = forestmix("infer", *words, "--out", tmp_path / "r.nc")
        assert ended.exit_code == 2
        assert ended.output.startswith("Error: ")
        assert name in ended.output
        assert len(ended.output.splitlines()) == 1
    assert not (tmp_path / "r.nc").exists()


def test_sizes_that_do_not_fit_name_both_files(tmp_path):
    np.save(tmp_path / "W.npy", W)
    np.save(tmp_path / "x.npy", np.ones((N, 3)))
    ended = forestmix("infer", tmp_path / "W.npy", tmp_path / "x.npy")
    assert ended.exit_code == 2
    assert "x.npy must have 30 entries" in ended.output
    assert "W.npy" in ended.output
    assert "transpose it" in ended.output


@pytest.mark.parametrize(
    ("x", "words", "says"),
    [
        (X - 5, ("--family", "poisson"), "x.npy: "),
        (X, ("--prior-sd", "-1"), "--prior-sd: sd must be greater than 0"),
        (X, ("--noise-sd", "0"), "--noise-sd: sd must be greater than 0"),
        (X, ("--tol", "2"), "Error: --tol must be 0 or a number between 0 and 1; got 2.0"),
        (X, ("--level", "nan"), "Error: --level must be a number between 0 and 1; got nan"),
    ],
)
def test_what_is_wrong_is_said_by_its_place(tmp_path, x, words, says):
    np.save(tmp_path / "W.npy", W)
    np.save(tmp_path / "x.npy", x)
    ended = forestmix("infer", tmp_path / "W.npy", tmp_path / "x.npy", *words)
    assert ended.exit_code == 2
    assert says in ended.output


def test_weights_that_are_not_finite_name_their_file(tmp_path):
    np.save(tmp_path / "W.npy", np.where(W > 2, np.nan, W))
    np.save(tmp_path / "x.npy", X)
    broken = np.array(W)
    broken[0, 0] = np.nan
    np.save(tmp_path / "W.npy", broken)
    ended = forestmix("infer", tmp_path / "W.npy", tmp_path / "x.npy")
    assert ended.exit_code == 2
    assert "W.npy: " in ended.output


@pytest.mark.parametrize("words", [["infer", "t.nc", "t.nc"], ["regress", "t.nc", "a ~ b"]])
def test_files_of_netcdf_name_the_extra_they_need(tmp_path, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "xarray", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    ended = forestmix(*words)
    assert ended.exit_code == 2
    assert "t.nc: NetCDF files need xarray: pip install 'forestmix[io]'" in ended.output


def test_numbers_of_a_table_are_not_broken_where_text_folds(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    number = "0.000134 (0.000124 to 0.000167)"
    show_rows("", ["panel", "curve", "gap"], [["fig2a", "a name of several words that folds", number]], text_columns=2)
    assert number in capsys.readouterr().out
