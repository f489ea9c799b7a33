from __future__ import annotations

import re
from pathlib import Path

import pytest

import forestmix.data
from forestmix.data.registry import DATASETS, find_dataset


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_every_data_set_can_be_checked_and_credited(dataset):
    assert find_dataset(dataset.name) is dataset
    assert re.fullmatch("[0-9a-f]{64}", dataset.checksum)
    assert dataset.licence
    assert dataset.citation
    assert dataset.download_bytes > 10_000_000
    for file in dataset.files:
        assert re.fullmatch("[0-9a-f]{32}", file.md5)
        assert file.addresses
        assert all(address.startswith("https://") and address.endswith(file.name) for address in file.addresses)


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_downloaded_files_are_a_layout_or_an_archive(dataset):
    names = tuple(file.name for file in dataset.files)
    assert names in {layout.members for layout in dataset.layouts} or set(names) <= set(dataset.archives)


def test_nothing_public_is_missing():
    assert all(hasattr(forestmix.data, name) for name in forestmix.data.__all__)


def test_what_ships_is_small():
    shipped = Path(forestmix.data.__file__).parent.glob("*.npz")
    assert 0 < sum(path.stat().st_size for path in shipped) < 1_500_000
