"""Fixtures that several files of tests use."""

import pytest

from forestmix import small
from forestmix.kernels import threaded


@pytest.fixture(autouse=True)
def compiled(request, monkeypatch):
    """Small models are compiled as well: what they test is tested in the kernels, which large models use.

    ``tests/engines`` has small models as they are.
    """
    if request.node.path.parent.name != "engines":
        monkeypatch.setattr(small, "ENTRIES", 0)
        monkeypatch.setattr(small, "LATENTS", 0)


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request, monkeypatch):
    """As many threads as asked for, however small the problem is."""
    monkeypatch.setattr(threaded, "threads", lambda entries: request.param)
