"""The JSON schema of a spec, for editors: `python -m sweeps.json_schema` writes it beside this file.

It is generated from the classes that validate a spec, so it can't drift from them; a test compares the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweeps.schema import Spec

PATH = Path(__file__).with_name("spec.schema.json")
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as plain data. It takes the long forms of a spec and the short ones."""
    schema = _tidy(Spec.model_json_schema())
    return {"$schema": DRAFT, "title": "sweeplaw spec", **{k: v for k, v in schema.items() if k != "title"}}


def text() -> str:
    """The schema as the text of its file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> Any:
    """Without what editors would show for nothing (titles made from names, examples of Python), and with names of
    entries checked."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    result = {key: _tidy(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if isinstance(said := result.get("description"), str):
        result["description"] = " ".join(said.partition(">>>")[0].split())
    if "patternProperties" in result:
        result.setdefault("additionalProperties", False)
    return result


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")
    print(PATH)


if __name__ == "__main__":
    main()
