from __future__ import annotations

import gzip
import io

import numpy as np
import pytest
from PIL import Image

from forestmix.data import formats
from forestmix.errors import ForestmixError

IDX = bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])


def test_idx_gives_its_bytes():
    assert formats.parse_idx(IDX, "labels", 1).tolist() == [7, 8, 9]


@pytest.mark.parametrize("data", [IDX[:-1], IDX + b"\0"], ids=["truncated", "too long"])
def test_idx_of_the_wrong_length_says_both_lengths(data):
    with pytest.raises(ForestmixError, match=rf"labels is damaged: it has {len(data)} bytes; expected 11"):
        formats.parse_idx(data, "labels", 1)


@pytest.mark.parametrize("data", [b"", IDX[:6], b"<html>no such page</html>", bytes([0, 0, 13, 1]) + IDX[4:]])
def test_idx_without_its_header_is_refused(data):
    with pytest.raises(ForestmixError, match="expected an IDX header, 00000801"):
        formats.parse_idx(data, "labels", 1)


def test_idx_of_labels_is_not_taken_for_images():
    with pytest.raises(ForestmixError, match="begins with 00000801; expected an IDX header, 00000803"):
        formats.parse_idx(IDX, "images", 3)


def test_gzip_truncated_or_not_gzip():
    whole = gzip.compress(bytes(1000))
    assert formats.decompress_gzip(whole, "file") == bytes(1000)
    for data in (whole[:-4], b"not gzip", whole[:12] + b"\xff\xff\xff" + whole[15:]):
        with pytest.raises(ForestmixError, match="file is damaged"):
            formats.decompress_gzip(data, "file")


def test_gzip_that_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "LARGEST_MEMBER", 999)
    with pytest.raises(ForestmixError, match="more than 999 bytes"):
        formats.decompress_gzip(gzip.compress(bytes(1000)), "file")


def test_cifar_binary_puts_colours_last():
    record = bytes([4]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    images, labels = formats.parse_cifar_binary(record * 2, "batch")
    assert labels.tolist() == [4, 4]
    assert images.shape == (2, 32, 32, 3)
    assert (images == [1, 2, 3]).all()


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_cifar_binary_needs_whole_records(size):
    with pytest.raises(ForestmixError, match=f"batch is damaged: it has {size} bytes; expected whole records"):
        formats.parse_cifar_binary(bytes(size), "batch")


def test_png_gives_back_every_value_exactly():
    values = np.resize(np.arange(256, dtype=np.uint8), (2, 1024, 3))
    file = io.BytesIO()
    Image.fromarray(values).save(file, format="png")
    np.testing.assert_array_equal(formats.parse_cifar_png(file.getvalue(), "batch"), values.reshape(2, 32, 32, 3))


def test_png_damaged_or_of_another_shape():
    file = io.BytesIO()
    Image.fromarray(np.zeros((2, 5, 3), np.uint8)).save(file, format="png")
    with pytest.raises(ForestmixError, match=r"its shape is \(2, 5, 3\); expected \(images, 1024, 3\)"):
        formats.parse_cifar_png(file.getvalue(), "batch")
    for data in (b"", b"no image", file.getvalue()[:50]):
        with pytest.raises(ForestmixError, match="batch is damaged"):
            formats.parse_cifar_png(data, "batch")


@pytest.mark.parametrize("data", [b"[1, 2", b"{}", b"[10]", b"[-1]", b"[1.5]", b"[true]", b'["3"]', b"\xff"])
def test_labels_must_be_a_list_of_classes(data):
    with pytest.raises(ForestmixError, match="labels is damaged"):
        formats.parse_json_labels(data, "labels")


def test_labels_are_read():
    labels = formats.parse_json_labels(b"[3, 0, 9]", "labels")
    assert labels.dtype == np.uint8
    assert labels.tolist() == [3, 0, 9]
