"""The picture of the rooms is complete, and has no circle."""

from __future__ import annotations

import re
import tomllib
from graphlib import CycleError

import pytest

from tests.helpers.printed.printed_files import ROOT, TOPS
from tests.helpers.printed.printed_rooms import imports, needed, picture

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


def test_every_part_of_the_core_is_kept_from_the_types_of_groups():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [
        each for each in settings["contracts"] if each["name"].startswith("Only conversion and")
    ]
    core = "groupkeeper.coordinator.core."
    kept = {name.removeprefix(core) for name in contract["source_modules"]}
    paths = (ROOT / "coordinator/core").iterdir()
    parts = {path.stem for path in paths if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - kept == {"__init__", "classic", "consumer", "conversion", "shard"}


def test_every_file_of_the_sources_has_its_line():
    page = (ROOT / "docs/reference/files.md").read_text()
    listed = set()
    for part in page.split("\n## ")[1:]:
        room = part.split("`")[1]
        listed |= {room + name for name in re.findall(r"^\| `(\w+\.py)` \|", part, re.MULTILINE)}
    files = {str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py")}
    assert len(files) > 300
    assert listed == files


def test_every_room_has_its_line_and_says_what_it_is_for():
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"^\| \[`([\w/]+/)`\]", text, re.MULTILINE))
    files = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in files}
    assert len(folders) > 20
    assert named == folders
