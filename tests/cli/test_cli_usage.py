"""Help, versions, errors and the data commands."""

import gzip
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import forestmix as fmx
from forestmix.cli import app
from forestmix.paper import Settings


def forestmix(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FORESTMIX_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_version():
    result = forestmix("--version")
    assert result.exit_code == 0
    assert result.output == f"forestmix {fmx.__version__}\n"


COMMANDS = [
    "infer", "regress", "predict", "compare", "report", "forest", "demo", "reproduce", "data list", "data fetch",
    "data verify",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example(command):
    result = forestmix(*command.split(), "--help")
    assert result.exit_code == 0
    assert "Usage: " in result.output
    assert re.search(rf"Example.*forestmix\s+{command}", result.output, re.DOTALL)


def test_help_lists_the_commands_and_the_exit_codes():
    output = forestmix("--help").output
    for word in ("demo", "reproduce", "data", "Exit codes"):
        assert word in output


def test_help_does_not_import_what_is_slow():
    """The parts that only a run needs are not loaded for --help."""
    code = (
        "import sys, forestmix.cli; "
        "print([name for name in ('matplotlib', 'forestmix.paper', 'forestmix.data') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_an_unknown_figure_is_an_error_that_names_the_nearest(tmp_path):
    result = forestmix("reproduce", "fig2d", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "got 'fig2d'. Did you mean" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_out_must_not_be_a_file(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("keep me")
    result = forestmix("demo", "--out", file)
    assert result.exit_code == 2
    assert "must be a folder" in result.output
    assert file.read_text() == "keep me"


def test_out_inside_a_file_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    result = forestmix("demo", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")


@pytest.mark.parametrize("option", [("--images", "0"), ("--iterations", "-1"), ("--seed", "x"), ("--wrong", "1")])
def test_wrong_options_are_wrong_usage(tmp_path, option):
    assert forestmix("reproduce", *option, "--out", tmp_path).exit_code == 2


def test_full_without_the_data_says_what_to_run(tmp_path, cache):
    result = forestmix("reproduce", "fig2a", "--full", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "Run: forestmix data fetch mnist" in result.output.splitlines()[-1]


def test_too_many_images_say_how_many_there_are(tmp_path):
    result = forestmix("reproduce", "fig2b", "--images", 41, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "images must be at most 40" in result.output


def test_data_list_shows_what_is_absent(cache):
    result = forestmix("data", "list")
    assert result.exit_code == 0
    assert "mnist" in result.output
    assert "absent" in result.output
    assert str(cache) in result.output


def test_data_verify_fails_for_what_is_absent(cache):
    result = forestmix("data", "verify", "mnist")
    assert result.exit_code == 1
    assert "not fetched" in result.output
    assert "forestmix data fetch mnist" in result.output


def test_data_verify_tells_damage(cache):
    cache.mkdir()
    (cache / "mnist.bin").write_bytes(b"not an archive")
    result = forestmix("data", "verify", "mnist")
    assert result.exit_code == 1
    assert "damaged" in result.output


def test_data_fetch_of_an_unknown_name_suggests_one(cache):
    result = forestmix("data", "fetch", "mnsit")
    assert result.exit_code == 2
    assert "Did you mean 'mnist'?" in result.output


def test_data_fetch_from_a_folder_without_the_files_is_an_error(cache, tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"short"))
    result = forestmix("data", "fetch", "mnist", "--from", tmp_path)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: ")
    assert not (cache / "mnist.bin").exists()


def test_settings_keep_the_order_of_the_paper():
    assert Settings(figures=("fig2c", "fig2a", "fig2c")).figures == ("fig2a", "fig2c")
    with pytest.raises(fmx.ArgumentError, match="at least one"):
        Settings(figures=())
    with pytest.raises(fmx.ArgumentError, match="figures must be a list"):
        Settings(figures="fig2a")
