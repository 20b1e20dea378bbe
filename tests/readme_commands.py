"""Print a command of the README (`run` or `test`), so that what is checked is what people copy."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def command(name: str) -> str:
    """The shell block of the README under `<!-- command: NAME -->`."""
    text = (Path(__file__).parent.parent / "README.md").read_text()
    found = re.search(rf"<!-- command: {name} -->\s*```bash\n(.*?)```", text, re.DOTALL)
    if found is None:
        raise SystemExit(f"README.md has no command block named {name!r}")
    return found[1]


if __name__ == "__main__":
    print("set -euo pipefail\n" + command(sys.argv[1]), end="")
