from pathlib import Path

from scaling.catalogue import page
from scaling.registry import REGISTRY


def test_the_page_of_laws_is_current() -> None:
    shown = (Path(__file__).parents[2] / "docs" / "laws.md").read_text(encoding="utf-8")
    assert shown == page(), "run python -m scaling.catalogue > docs/laws.md"
    assert all(f"## {name}\n" in shown for name in REGISTRY)
