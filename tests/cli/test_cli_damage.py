"""Files that are damaged, newer or of another program, through every command that reads what was saved."""

import pickle

import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

import forestmix as fmx
from forestmix.cli import app
from forestmix.data import load_table
from forestmix.files import seal

TABLE = load_table("schools")[:30]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole fit, a table of new rows, and a file for each way to be wrong."""
    folder = tmp_path_factory.mktemp("damage")
    fit = fmx.regress("mark ~ before", TABLE, prior="flat")
    fit.save(folder / "fit.nc")
    TABLE.to_csv(folder / "new.csv", index=False)
    whole = (folder / "fit.nc").read_bytes()
    middle = len(whole) // 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seal, "FORMAT", seal.FORMAT + 1)
        fit.save(folder / "newer.nc")
    model = fmx.DEF(fmx.Layer(fmx.Gaussian(1.0), np.eye(3)))
    fmx.infer(model, np.ones(3)).save(folder / "reference.nc", weights="reference")
    (folder / "cut.nc").write_bytes(whole[:middle])
    (folder / "flipped.nc").write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
    (folder / "pickled.nc").write_bytes(pickle.dumps({"a": 1}))
    (folder / "empty.nc").write_bytes(b"")
    xarray.Dataset({"a": ("x", np.arange(3.0))}).to_netcdf(folder / "other.nc", engine="h5netcdf")
    return folder


SAYS = {
    "newer": "from a newer version",
    "cut": "cut off",
    "flipped": "checksum does not fit",
    "pickled": "a pickle, which is never loaded",
    "empty": "it is empty",
    "other": "made or changed by another program",
    "reference": "without holding them",
}
COMMANDS = {
    "predict": ("predict", "{file}", "{0}/new.csv", "--out", "{0}/made"),
    "compare": ("compare", "{0}/fit.nc", "{file}"),
    "report": ("report", "{file}", "--out", "{0}/made"),
}


@pytest.mark.parametrize("kind", SAYS)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_line_names_the_file_and_says_what_it_is(folder, command, kind):
    file = folder / f"{kind}.nc"
    ended = CliRunner().invoke(app, [word.format(folder, file=file) for word in COMMANDS[command]])
    assert ended.exit_code == 2
    assert ended.output.startswith("Error: ")
    assert f"{kind}.nc" in ended.output
    assert SAYS[kind] in ended.output
    assert len(ended.output.splitlines()) == 1
    assert not (folder / "made").exists()


@pytest.mark.parametrize("kind", [kind for kind in SAYS if kind not in ("other", "reference")])
@pytest.mark.parametrize("words", [("infer", "{file}", "{file}"), ("regress", "{file}", "y ~ 1"), ("forest", "{file}")])
def test_as_data_they_are_refused_too(folder, words, kind):
    file = folder / f"{kind}.nc"
    ended = CliRunner().invoke(app, [word.format(file=file) for word in words])
    assert ended.exit_code == 2
    assert ended.output.startswith("Error: ")
    assert f"{kind}.nc" in ended.output
    assert len(ended.output.splitlines()) == 1
