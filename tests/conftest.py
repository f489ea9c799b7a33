"""Fixtures that several files of tests use."""
import pytest
from forestmix.engines import choice

@pytest.fixture(autouse=True, scope="session")
def reference():
    choice.SMALL = 10**18
    yield
