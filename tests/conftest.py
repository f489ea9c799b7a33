"""Fixtures that several files of tests use."""

import pytest

from forestmix import small
from forestmix.engines.compiled import threaded


@pytest.fixture(autouse=True, scope="module")
def compiled(request):
    """Small models are compiled as well: what they test is tested in the kernels, which large models use.

    ``tests/engines`` has small models as they are.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "engines" not in request.path.parts:
            patch.setattr(small, "ENTRIES", 0)
            patch.setattr(small, "LATENTS", 0)
        yield


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def threads(request, monkeypatch):
    """As many threads as asked for, however small the problem is."""
    monkeypatch.setattr(threaded, "threads", lambda entries: request.param)
