"""The picture of the rooms is complete, and has no circle."""

from __future__ import annotations

import re
from graphlib import CycleError

import pytest

from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.printed.printed_rooms import imports, needed, picture

TOPS = ("coordinator", "protocol", "storage", "pipeline", "clients")
ARROWS = {("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")}


def reached(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Every pair of rooms with a way along the arrows."""
    while True:
        longer = {(a, d) for a, b in arrows for c, d in arrows if b == c} - arrows
        if not longer:
            return arrows
        arrows = arrows | longer


def test_an_arrow_that_follows_from_two_others_is_left_out():
    assert needed(ARROWS) == ARROWS - {("a", "c")}


def test_rooms_that_import_each_other_in_a_circle_cannot_be_drawn():
    with pytest.raises(CycleError):
        needed(ARROWS | {("c", "a")})


def test_the_picture_reaches_what_the_imports_reach_and_no_more():
    assert reached(needed(imports())) == reached(set(imports()))


def test_every_folder_of_the_coordinator_is_a_box():
    folders = [p.parent.name for p in (ROOT / "coordinator").glob("*/__init__.py")]
    assert len(folders) > 8
    assert [name for name in folders if f'["coordinator/{name}"]' not in picture()] == []


def test_every_folder_of_the_sources_has_its_line_below_the_picture():
    lines = (ROOT / "docs/architecture.md").read_text().splitlines()
    named = {line.split("`")[1] for line in lines if line.startswith("- `")}
    files = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in files}
    assert len(folders) > 20
    assert sorted(folders - named) == []


A_FILE_FOR_EACH_API = ("coordinator/handlers/", "coordinator/handlers/configs/", "protocol/packed/")


def test_the_line_of_a_room_names_its_files():
    text = (ROOT / "docs/architecture.md").read_text()
    parts = re.split(r"\n- |\n\n", text)
    lines = {part.split("`")[1]: part for part in parts if "`" in part}
    files = [
        path
        for top in TOPS
        for path in (ROOT / top).rglob("*.py")
        if f"{path.parent.relative_to(ROOT)}/" not in A_FILE_FOR_EACH_API
    ]
    assert len(files) > 300
    missing = []
    for path in files:
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        line = lines[f"{path.parent.relative_to(ROOT)}/"]
        if path.stem != "__init__" and f"`{path.stem}`" not in line and name not in lines:
            missing.append(name)
    assert missing == []
