"""Fixtures that several files of tests use."""

import pytest

from forestmix.kernels import threaded


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request, monkeypatch):
    """As many threads as asked for, however small the problem is."""
    monkeypatch.setattr(threaded, "threads", lambda entries: request.param)
