"""The code blocks of the README and the guide run as they stand, one after another."""

import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python" in path.read_text("utf-8")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    matplotlib.pyplot.close("all")


def test_links_between_files_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


#: A file of the repository as prose names it: by its path from the root, or from ``src/forestmix``.
NAMED_FILE = re.compile(r"`([a-z_]+(?:/[\w.]+)*/\w+\.(?:py|md))`")


def test_files_that_contributors_are_sent_to_are_there():
    for page in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"):
        named = NAMED_FILE.findall(page.read_text("utf-8"))
        assert len(named) > 5
        for name in named:
            assert (ROOT / name).exists() or (ROOT / "src" / "forestmix" / name).exists(), f"{page.name} names {name}"
