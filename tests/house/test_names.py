"""A name means one thing in the product."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.helpers.printed.printed_docs import ROOT

FOLDERS = ("coordinator", "protocol", "storage", "pipeline", "clients")


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
