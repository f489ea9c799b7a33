from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest

from forestmix.data import registry, sources
from forestmix.errors import ArgumentError, ForestmixError


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == np.uint8
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


LAYOUTS = [
    ("tiny_mnist", "raw", ""),
    ("tiny_mnist", "raw", "package/data/"),
    ("tiny_mnist", "gzip", ""),
    ("tiny_mnist", "gzip", "MNIST/raw/"),
    ("tiny_cifar10", "binary", "cifar-10-batches-bin/"),
    ("tiny_cifar10", "binary", ""),
    ("tiny_cifar10", "png", "package/"),
]


@pytest.mark.parametrize(("fixture", "layout", "folder"), LAYOUTS)
def test_directory_and_tarball_give_the_same_arrays(
    fixture, layout, folder, request, tmp_path, write_directory, write_tarball
):
    tiny = request.getfixturevalue(fixture)
    dataset = registry.find_dataset(tiny.name)
    directory = write_directory(tmp_path / "files", tiny.files(layout), folder)
    tarball = write_tarball(tmp_path / "files.tgz", tiny.files(layout), folder)
    assert_same(sources.read_source(dataset, directory), tiny.arrays)
    assert_same(sources.read_source(dataset, tarball), tiny.arrays)


def test_directory_may_hold_the_tarball(tiny_cifar10, tmp_path, write_tarball):
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tarball(path, tiny_cifar10.files("binary"), "cifar-10-batches-bin/")
    assert_same(sources.read_source(registry.find_dataset("cifar10"), tmp_path), tiny_cifar10.arrays)


def test_incomplete_source_says_what_it_holds_and_what_is_needed(tiny_mnist, tmp_path, write_directory):
    files = tiny_mnist.files("raw")
    del files["t10k-labels-idx1-ubyte"]
    write_directory(tmp_path / "files", files)
    with pytest.raises(ArgumentError, match=r"source must hold a complete copy of mnist.*holds t10k-images"):
        sources.read_source(registry.find_dataset("mnist"), tmp_path / "files")


def test_source_that_does_not_exist(tmp_path):
    with pytest.raises(ArgumentError, match=r"source must be a directory or a tarball that exists; got .*nowhere"):
        sources.read_source(registry.MNIST, tmp_path / "nowhere")


def test_pickles_of_the_python_version_are_never_read(tmp_path, write_tarball, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("unpickled")

    batch = pickle.dumps({b"data": b"", b"labels": []})
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    path = tmp_path / "cifar-10-python.tar.gz"
    write_tarball(path, dict.fromkeys(names, batch), "cifar-10-batches-py/")
    for source in (path, tmp_path):
        with pytest.raises(ArgumentError, match=r"pickles.*use cifar-10-binary\.tar\.gz"):
            sources.read_source(registry.CIFAR10, source)


def test_truncated_tarball(tiny_mnist, tmp_path, write_tarball):
    path = write_tarball(tmp_path / "files.tgz", tiny_mnist.files("raw"))
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ForestmixError, match=r"files\.tgz is damaged.*expected a complete compressed tarball"):
            sources.read_source(registry.find_dataset("mnist"), path)


def test_file_that_is_no_tarball(tmp_path):
    path = tmp_path / "files.tgz"
    path.write_text("<html>no such page</html>")
    with pytest.raises(ForestmixError, match="expected a complete compressed tarball"):
        sources.read_source(registry.MNIST, path)


def test_members_that_point_outside_are_neither_read_nor_written(tiny_mnist, tmp_path, write_tarball):
    inside = tmp_path / "inside"
    inside.mkdir()
    for folder in ("../", "/", "package/../../"):
        path = write_tarball(inside / "files.tgz", tiny_mnist.files("raw"), folder)
        with pytest.raises(ArgumentError, match="holds none of them"):
            sources.read_source(registry.find_dataset("mnist"), path)
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["files.tgz", "inside"]


def test_links_in_a_tarball_are_not_followed(tiny_mnist, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(tiny_mnist.files("raw")["train-labels-idx1-ubyte"])
    path = tmp_path / "files.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in tiny_mnist.files("raw").items():
            member = tarfile.TarInfo(name)
            if name == "train-labels-idx1-ubyte":
                member.type, member.linkname = tarfile.SYMTYPE, str(secret)
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    with pytest.raises(ArgumentError, match="must hold a complete copy"):
        sources.read_source(registry.find_dataset("mnist"), path)


def test_members_far_too_large_are_refused(tiny_mnist, tmp_path, write_directory, write_tarball, monkeypatch):
    monkeypatch.setattr(sources, "LARGEST_MEMBER", 600)
    dataset = registry.find_dataset("mnist")
    files = {name: data + bytes(1000) for name, data in tiny_mnist.files("raw").items()}
    directory = write_directory(tmp_path / "files", files)
    tarball = write_tarball(tmp_path / "files.tgz", files)
    for source in (directory, tarball):
        with pytest.raises(ForestmixError, match="bytes; expected at most 600"):
            sources.read_source(dataset, source)
