"""Files that are damaged, or made to do harm: an error of the package and no other, and never much memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

from forestmix.cli import app
from forestmix.data import State, fetch, formats, list_datasets, load_mnist, registry, sources, verify
from forestmix.data.formats import ARRAY_NAMES
from forestmix.errors import ForestmixError

MUTANTS = 300
#: No reader takes more for a small file: two members of the largest size, and some.
MEMORY = 160 * 2**20
HEADER = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }"


#: 100 MiB that take little room.
ZEROS = gzip.compress(bytes(100 * 2**20), 1)


@contextlib.contextmanager
def little_memory():
    """Fail where more memory is taken than readers may take."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def mutants(data, random):
    """Yield copies that are cut off, have bits flipped, or have a part overwritten, left out or repeated."""
    for _ in range(MUTANTS):
        changed = bytearray(data)
        place, length = random.integers(len(data)), random.integers(1, 9)
        match random.integers(5):
            case 0:
                del changed[place:]
            case 1:
                for bit in random.integers(8 * len(data), size=length):
                    changed[bit // 8] ^= 1 << (bit % 8)
            case 2:
                changed[place : place + length] = random.choice([b"\xff", b"\0", b"9"]) * int(length)
            case 3:
                del changed[place : place + length]
            case 4:
                changed[place:place] = changed[: random.integers(len(data))]
        yield bytes(changed)


class Harm:
    """Something that leaves a trace where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def npy(text, content=b"", version=1):
    """Return an array's file with any text for its header."""
    size = struct.pack("<H" if version == 1 else "<I", len(text) + 1)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + b"\n" + content


def archive(content, kind=zipfile.ZIP_STORED):
    """Return an archive in which every array has this content."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind, compresslevel=1) as made:
        for name in ARRAY_NAMES:
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def rewritten(data, local, central, number):
    """Return an archive with a number put over part of each local header and each entry of the directory."""
    changed = bytearray(data)
    for signature, offset in ((b"PK\3\4", local), (b"PK\1\2", central)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            changed[at + offset : at + offset + len(number)] = number
    return bytes(changed)


def archives(harm):
    """Return archives that are wrong in ways that a random change seldom finds."""
    right = archive(npy(HEADER % ("|u1", "(5,)"), bytes(5)))
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as made:
        for number in range(8000):
            made.writestr(f"{number:0100}", b"")
    headers = {
        "huge": HEADER % ("|u1", "(1000000000000,)"), "huge, of words": HEADER % ("<f8", "(100000000000,)"),
        "overflowing": HEADER % ("|u1", f"({2**62}, {2**62})"), "negative": HEADER % ("|u1", "(-1,)"),
        "of nothing": HEADER % ("|u1", f"(0, {2**62})"), "of many digits": HEADER % ("|u1", f"({'9' * 9000},)"),
        "not closed": "{'descr': '|u1', 'shape': (5", "of numbers": "{1: 2, 'a': 3}", "nested": "(" * 9000,
        "code": "__import__('os').mkdir('x')", "void": HEADER % ("|V5", "(1,)"), "empty": "",
    }  # fmt: skip
    return (
        {f"header {name}": archive(npy(text, bytes(5))) for name, text in headers.items()}
        | {
            "pickled": archive(npy(HEADER % ("|O", "(1,)"), pickle.dumps(Harm(harm)))),
            "only a pickle": pickle.dumps(Harm(harm)),
            "members that are pickles": archive(pickle.dumps(Harm(harm))),
            "version 2": archive(npy(HEADER % ("|u1", "(5,)"), bytes(5), version=2)),
            "encrypted": rewritten(right, 6, 8, b"\1"),
            "unknown compression": rewritten(right, 8, 10, b"\x63"),
            "unknown version": rewritten(right, 4, 6, b"\xff"),
            "length that is not there": rewritten(right, 22, 24, b"\xff\xff\xff\x7f"),
            "offset that is not there": rewritten(right, 30, 42, b"\xff\xff\xff\x7f"),
            "many members": many.getvalue(),
        }
        | {
            f"bomb {kind}": archive(npy(HEADER % ("|u1", f"({size},)"), bytes(size)), kind)
            for kind, size in ((zipfile.ZIP_DEFLATED, 2**25), (zipfile.ZIP_BZIP2, 2**20), (zipfile.ZIP_LZMA, 2**20))
        }
    )


@pytest.fixture
def source(tiny_mnist, tmp_path, write_directory):
    return write_directory(tmp_path / "source", tiny_mnist.files("raw"))


def test_any_damage_in_the_cache_is_told_and_repaired(tiny_mnist, source, cache):
    path = fetch("mnist", source)
    random = np.random.default_rng(0)
    for data in mutants(path.read_bytes(), random):
        path.write_bytes(data)
        assert {status.dataset.name for status in list_datasets()} == {"mnist", "cifar10"}
        state = verify("mnist").state
        try:
            images = load_mnist().images
            assert state is State.PRESENT
            assert np.array_equal(images, tiny_mnist.arrays["train_images"])
        except ForestmixError:
            assert state is State.CORRUPT
    fetch("mnist", source)
    assert verify("mnist").state is State.PRESENT


def test_archives_made_to_do_harm(source, cache, tmp_path):
    cache.mkdir()
    path, harm = cache / "mnist.bin", tmp_path / "harm"
    made = archives(harm)
    for name, data in made.items():
        path.write_bytes(data)
        with little_memory():
            results = [CliRunner().invoke(app, ["data", *words]) for words in (["list"], ["verify", "mnist"])]
            with pytest.raises(ForestmixError, match=r"mnist\.bin is damaged"):
                load_mnist()
        assert [result.exit_code for result in results] == [0, 1], (name, results)
        repaired = CliRunner().invoke(app, ["data", "fetch", "mnist", "--from", str(source)])
        assert repaired.exit_code == 0, (name, repaired.output)
        assert verify("mnist").state is State.PRESENT
    assert not harm.exists()


def test_experiments_on_damaged_data_say_how_to_mend_it(cache, tmp_path):
    cache.mkdir()
    (cache / "mnist.bin").write_bytes(archive(npy("{1: 2, 'a': 3}")))
    result = CliRunner().invoke(app, ["reproduce", "fig2a", "--full", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].endswith("Run: forestmix data fetch mnist")


def test_what_is_not_a_file_of_the_right_length_is_damaged(cache):
    (cache / "mnist.bin").mkdir(parents=True)
    assert verify("mnist").state is State.CORRUPT
    (cache / "mnist.bin").rmdir()
    os.mkfifo(cache / "mnist.bin")  # to open one would wait for ever
    assert verify("mnist").state is State.CORRUPT
    with (cache / "cifar10.bin").open("wb") as file:
        file.truncate(2**40)  # which takes no room, and would be all of the memory
    with little_memory():
        assert verify("cifar10").state is State.CORRUPT


def test_arrays_in_another_order_are_damaged(tiny_mnist, cache):
    cache.mkdir()
    content = b"".join(tiny_mnist.arrays[name].tobytes() for name in reversed(ARRAY_NAMES))
    (cache / "mnist.bin").write_bytes(content)
    with pytest.raises(ForestmixError, match=r"mnist\.bin is damaged.*checksum.*Run: forestmix data fetch mnist"):
        load_mnist()


def test_a_home_that_is_nobodys_is_an_ordinary_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORESTMIX_DATA", "~nobody-of-that-name/cache")
    assert verify("mnist").state is State.ABSENT
    with pytest.raises(ForestmixError, match="source must be a directory"):
        fetch("mnist", "~another-of-no-name")


@pytest.mark.parametrize(("fixture", "layout"), [
    ("tiny_mnist", "raw"), ("tiny_mnist", "gzip"), ("tiny_cifar10", "binary"), ("tiny_cifar10", "png"),
])  # fmt: skip
def test_any_damage_in_a_source_is_an_error_of_the_package(
    fixture, layout, request, tmp_path, write_directory, write_tarball
):
    tiny = request.getfixturevalue(fixture)
    dataset, files = registry.find_dataset(tiny.name), tiny.files(layout)
    names, random = sorted(files), np.random.default_rng(1)
    directory = write_directory(tmp_path / "files", files)
    tarball = write_tarball(tmp_path / "files.tgz", files)
    unpacked = gzip.decompress(tarball.read_bytes())
    for number, data in enumerate(mutants(unpacked, random)):
        name = names[number % len(names)]
        damaged = next(mutants(files[name], random))
        (directory / name).write_bytes(damaged)
        tarball.write_bytes(gzip.compress(data, 1))
        for source in (directory, tarball):
            with contextlib.suppress(ForestmixError):
                sources.read_source(dataset, source)
        (directory / name).write_bytes(files[name])


def header(size, kind=b"0", name=b"train-images-idx3-ubyte"):
    """Return the header of a member of a tarball, with any bytes for its size."""
    fields = bytearray(tarfile.BLOCKSIZE)
    fields[: len(name)], fields[124:136], fields[156:157] = name, size, kind
    fields[257:265], fields[148:156] = b"ustar\x0000", b" " * 8
    fields[148:156] = b"%06o\0 " % sum(fields)
    return bytes(fields)


@pytest.mark.parametrize("kind", [b"0", b"x", b"L", b"g"])
@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 11 + b"\0", b"\xff" * 12])
def test_lengths_in_a_tarball_are_not_believed(kind, size, tmp_path):
    """Of a member, and of the headers that tarfile reads by itself; some are negative, which leads round in circles."""
    path = tmp_path / "files.tgz"
    path.write_bytes(gzip.compress(header(size, kind)) + ZEROS)
    with little_memory(), pytest.raises(ForestmixError):
        sources.read_source(registry.MNIST, path)


def test_a_tarball_of_very_many_members_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "files.tgz"
    path.write_bytes(gzip.compress(header(b"00000000000\0", name=b"other") * 1001))
    with pytest.raises(ForestmixError, match="1001 members"):
        sources.read_source(registry.MNIST, path)
    monkeypatch.setattr(sources, "LARGEST_TARBALL", 511)
    with pytest.raises(ForestmixError, match="512 bytes and 1 members"):
        sources.read_source(registry.MNIST, path)


def test_labels_nested_too_deeply_or_too_many():
    for data in (b"[" * 100_000, b"[" + b"[]," * 10**6 + b"[]]"):
        with little_memory(), pytest.raises(ForestmixError, match="labels is damaged"):
            formats.parse_json_labels(data, "labels")


@pytest.mark.parametrize("place", [(16, b"\0\1\0\0"), (20, b"\0\1\0\0"), (24, b"\x10"), (25, b"\6")])
def test_a_picture_that_would_unpack_to_more_is_not_unpacked(place, tiny_cifar10, monkeypatch):
    data = bytearray(tiny_cifar10.files("png")["test_batch.png"])
    start, content = place
    data[start : start + len(content)] = content
    monkeypatch.setattr("matplotlib.image.imread", lambda *_, **__: pytest.fail("unpacked"))
    with pytest.raises(ForestmixError, match="batch is damaged"):
        formats.parse_cifar_png(bytes(data), "batch")


def test_a_gzip_bomb_stops_at_its_limit():
    with little_memory(), pytest.raises(ForestmixError, match="bytes unpacked"):
        formats.decompress_gzip(ZEROS, "file")
