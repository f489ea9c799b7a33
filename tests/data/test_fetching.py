from __future__ import annotations

import hashlib
import io
import os
import shutil
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pooch
import pytest

from forestmix.data import (
    State,
    cache_directory,
    fetch,
    list_datasets,
    load_cifar10,
    load_mnist,
    registry,
    verify,
)
from forestmix.data import cache as cache_module
from forestmix.data.cache import checksum
from forestmix.data.formats import ARRAY_NAMES
from forestmix.errors import ArgumentError, ForestmixError


@pytest.fixture
def source(tiny_mnist, tmp_path, write_directory):
    return write_directory(tmp_path / "source", tiny_mnist.files("raw"))


def names_in(directory):
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_fetched_data_loads(tiny_mnist, source, cache):
    messages = []
    path = fetch("mnist", source, progress=messages.append)
    assert path == cache / "mnist.bin"
    assert names_in(cache) == ["mnist.bin"]
    assert [message.split()[0] for message in messages] == ["reading", "stored"]
    for split in ("train", "test"):
        found = load_mnist(split)
        np.testing.assert_array_equal(found.images, tiny_mnist.arrays[f"{split}_images"])
        np.testing.assert_array_equal(found.labels, tiny_mnist.arrays[f"{split}_labels"])
        np.testing.assert_array_equal(found.index, np.arange(len(found.labels)))


@pytest.mark.parametrize("layout", ["binary", "png"])
def test_cache_is_the_same_from_every_source(layout, tiny_cifar10, tmp_path, write_tarball, cache):
    tarball = write_tarball(tmp_path / "files.tgz", tiny_cifar10.files(layout), "package/")
    fetch("cifar10", str(tarball))
    assert verify("cifar10").state is State.PRESENT
    np.testing.assert_array_equal(load_cifar10("test").images, tiny_cifar10.arrays["test_images"])


def test_states(tiny_mnist, source, cache):
    assert verify("mnist").state is State.ABSENT
    path = fetch("mnist", source)
    assert verify("mnist").state is State.PRESENT
    assert {status.dataset.name: status.state.label for status in list_datasets()} == {
        "mnist": "present",
        "cifar10": "absent",
    }
    path.write_bytes(path.read_bytes()[:-10])
    assert verify("mnist").state is State.CORRUPT
    with pytest.raises(ForestmixError, match=r"mnist\.bin is damaged.*Run: forestmix data fetch mnist"):
        load_mnist()
    fetch("mnist", source)
    assert verify("mnist").state is State.PRESENT


def test_other_arrays_in_the_cache_are_corrupt(tiny_mnist, cache):
    cache.mkdir()
    changed = {name: array.copy() for name, array in tiny_mnist.arrays.items()}
    changed["test_labels"][0] ^= 1
    cache_module.write_arrays(cache / "mnist.bin", changed)
    assert verify("mnist").state is State.CORRUPT
    with pytest.raises(ForestmixError, match=r"mnist\.bin is damaged .*checksum.*Run: forestmix data fetch mnist"):
        load_mnist()


def test_archives_of_earlier_versions_and_pickles_are_refused(tiny_mnist, cache):
    cache.mkdir()
    for content in (tiny_mnist.arrays, {name: np.array([{}], dtype=object) for name in tiny_mnist.arrays}):
        with (cache / "mnist.bin").open("wb") as file:
            np.savez(file, **content)
        assert verify("mnist").state is State.CORRUPT
        with pytest.raises(ForestmixError, match="damaged"):
            load_mnist()


def test_present_data_is_not_fetched_again(source, cache):
    fetch("mnist", source)
    shutil.rmtree(source)
    messages = []
    assert fetch("mnist", source, progress=messages.append) == cache / "mnist.bin"
    assert messages == [f"mnist is in {cache / 'mnist.bin'} already"]


def test_source_with_other_content_is_not_stored(tiny_mnist, source, cache):
    name = "train-labels-idx1-ubyte"
    data = bytearray((source / name).read_bytes())
    data[-1] ^= 1
    (source / name).write_bytes(data)
    with pytest.raises(ForestmixError, match=r"not the original ones.*Nothing was stored"):
        fetch("mnist", source)
    assert names_in(cache) == []


def test_nothing_is_left_when_writing_fails(source, cache, monkeypatch):
    class Full(io.FileIO):
        def write(self, data):
            super().write(bytes(data)[:4])
            raise OSError("no space left on device")

    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, mode: Full(self, "w") if mode == "wb" else real(self, mode))
    with pytest.raises(ForestmixError, match=r"cannot write to .*no space left.*FORESTMIX_DATA"):
        fetch("mnist", source)
    assert names_in(cache) == []


def test_the_file_appears_in_one_step(tiny_mnist, tmp_path, monkeypatch):
    path = tmp_path / "set.bin"
    moved = []

    def replace_file(partial, target):
        assert not path.exists()
        expected = b"".join(tiny_mnist.arrays[name].tobytes() for name in ARRAY_NAMES)
        assert Path(partial).read_bytes() == expected  # whole before it is moved
        moved.append(target)
        Path(partial).rename(target)

    monkeypatch.setattr(os, "replace", replace_file)
    cache_module.write_arrays(path, tiny_mnist.arrays)
    assert moved == [path]


def test_absent_data_says_how_to_fetch_it(cache):
    with pytest.raises(ForestmixError, match="Run: forestmix data fetch mnist"):
        load_mnist()
    with pytest.raises(ForestmixError, match="Run: forestmix data fetch cifar10"):
        load_cifar10("test")


def test_a_source_that_is_no_path(cache):
    with pytest.raises(ArgumentError, match="source must be the path of a directory or a tarball, or None; got 3"):
        fetch("mnist", 3)


@pytest.mark.parametrize("function", [fetch, verify])
def test_unknown_name(function, cache):
    with pytest.raises(ArgumentError, match=r"name must be one of 'cifar10', 'mnist'; got 'minst'. Did you mean"):
        function("minst")


def test_unknown_split(cache):
    with pytest.raises(ArgumentError, match="split must be one of 'test', 'train'; got 'valid'"):
        load_mnist("valid")


def test_cache_directory_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FORESTMIX_DATA", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("FORESTMIX_DATA", "")
    assert cache_directory() == Path(pooch.os_cache("forestmix"))
    monkeypatch.delenv("FORESTMIX_DATA")
    assert cache_directory() == Path(pooch.os_cache("forestmix"))


def test_cache_that_cannot_be_made(tmp_path, source, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORESTMIX_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(ForestmixError, match=r"cannot write to .*Set the environment variable FORESTMIX_DATA"):
        fetch("mnist", source)


def test_checksum_depends_on_names_shapes_and_bytes():
    array = np.arange(6, dtype=np.uint8)
    sums = [
        checksum({"a": array}),
        checksum({"b": array}),
        checksum({"a": array.reshape(2, 3)}),
        checksum({"a": array[::-1]}),
    ]
    assert len(set(sums)) == 4
    assert checksum({"a": array[::-1]}) == checksum({"a": array[::-1].copy()})


@pytest.fixture
def served(tiny_mnist, tmp_path, monkeypatch):
    """Local files in place of the network: pooch checks their hashes, but a downloader copies them."""
    files = tiny_mnist.files("gzip")
    remote = tuple(replace(file, md5=hashlib.md5(files[file.name]).hexdigest()) for file in registry.MNIST.files)
    monkeypatch.setitem(registry.DATASETS, "mnist", replace(registry.DATASETS["mnist"], files=remote))
    asked = []

    def copy(address, target, source):
        asked.append(address)
        if address not in answers:
            raise OSError("no route to host")
        Path(target).write_bytes(answers[address])

    answers = {file.addresses[-1]: files[file.name] for file in remote}
    monkeypatch.setattr(pooch.core, "choose_downloader", lambda address, progressbar: copy)
    return answers, asked


def test_download_tries_each_address_and_leaves_only_the_archive(served, tiny_mnist, cache):
    _, asked = served
    messages = []
    fetch("mnist", progress=messages.append)
    assert messages[0] == "downloading train-images-idx3-ubyte.gz (9.9 MB)"
    assert asked == [address for file in registry.MNIST.files for address in file.addresses]
    assert names_in(cache) == ["mnist.bin"]
    assert verify("mnist").state is State.PRESENT


def test_download_of_other_content_is_refused(served, cache):
    answers, _ = served
    address = registry.MNIST.files[2].addresses[-1]
    answers[address] = b"<html>no such page</html>"
    with pytest.raises(ForestmixError, match=r"could not download t10k-images.*--from DIRECTORY"):
        fetch("mnist")
    assert names_in(cache) == []


def test_download_without_a_network(served, cache):
    answers, _ = served
    answers.clear()
    with pytest.raises(ForestmixError, match="no route to host"):
        fetch("mnist")
    assert names_in(cache) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a directory that refuses us")
def test_download_into_a_cache_that_refuses(served, cache):
    cache.mkdir(mode=0o500)
    with pytest.raises(ForestmixError, match="cannot write to"):
        fetch("mnist")


def test_download_over_http_moves_the_bar(tiny_mnist, cache, tmp_path, monkeypatch):
    """The whole way, from a server on this machine: pooch's own downloader, and the command line's bar."""
    from forestmix.cli.terminal import DownloadBar, download_bar

    folder = tmp_path / "served"
    folder.mkdir()
    for name, content in tiny_mnist.files("gzip").items():
        (folder / name).write_bytes(content)
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    moved = []
    monkeypatch.setattr(DownloadBar, "reset", lambda self: moved.append(self.total))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        remote = tuple(
            replace(
                file,
                addresses=(f"http://127.0.0.1:{server.server_port}/{file.name}",),
                md5=hashlib.md5((folder / file.name).read_bytes()).hexdigest(),
            )
            for file in registry.MNIST.files
        )
        monkeypatch.setitem(registry.DATASETS, "mnist", replace(registry.DATASETS["mnist"], files=remote))
        with download_bar() as bar:
            fetch("mnist", bar=bar)
        server.shutdown()
    assert moved == [(folder / file.name).stat().st_size for file in remote]
    assert verify("mnist").state is State.PRESENT
