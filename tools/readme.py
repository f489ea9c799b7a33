"""The first Python block of the README: what a reader tries first, and so what must run in every environment."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def first_block() -> str:
    """Return the code of the block."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL)
    if found is None:
        raise ValueError("README.md must have a block that begins with ```python")
    return found[1]


if __name__ == "__main__":
    print(first_block())
