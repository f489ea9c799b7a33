"""Fixtures that several files of tests use."""

from pathlib import Path

import pytest

from forestmix.engines import choice
from forestmix.engines.compiled import threaded

#: Folders whose tests choose engines themselves, or are about what runs above them.
AS_THEY_COME = {"engines", "files", "posterior", "regression", "scales"}


@pytest.fixture(autouse=True, scope="module")
def small_models_are_compiled(request):
    """Have the kernels run the small models of tests of behaviour, as they do the large ones of users."""
    with pytest.MonkeyPatch.context() as patch:
        if not AS_THEY_COME & set(Path(request.path).relative_to(Path(__file__).parent).parts):
            patch.setattr(choice, "SMALL", 0)
        yield


@pytest.fixture(params=["one thread", "three"])
def threads(request, monkeypatch):
    """Run passes on one thread, and on three however small the work is."""
    count = 1 if request.param == "one thread" else 3
    monkeypatch.setattr(threaded, "threads", lambda entries: count)
    return count
