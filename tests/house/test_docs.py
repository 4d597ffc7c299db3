"""What the documents name exists."""

from __future__ import annotations

import re

import pytest

from tests.helpers.printed_docs import ROOT, SECTIONS, with_printed_sections
from tests.helpers.printed_states import CAUSES, DEAD, PREDECESSORS

DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
PLACES = [ROOT, ROOT / "coordinator", ROOT / "coordinator" / "core"]


def test_every_file_that_the_architecture_names_exists():
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", (ROOT / "docs/architecture.md").read_text()))
    assert len(named) > 20
    assert [n for n in sorted(named) if not any((place / n).exists() for place in PLACES)] == []


@pytest.mark.parametrize("document", SECTIONS, ids=lambda path: path.name)
def test_what_stands_between_markers_is_printed_from_the_code(document):
    assert with_printed_sections(document) == document.read_text(), "run `make docs`"


def test_the_diagram_of_states_has_a_cause_for_each_step_and_no_other():
    steps = {(before, to) for to, all_before in PREDECESSORS.items() for before in all_before}
    assert CAUSES.keys() == {step for step in steps if step[1] is not DEAD}


@pytest.mark.parametrize("name", [n for n in DOCUMENTS if n.startswith("docs/decisions/0")])
def test_a_decision_has_a_date_a_context_a_choice_and_what_was_turned_down(name):
    text = (ROOT / name).read_text()
    labels = [f"**{label}.**" for label in ("Date", "Context", "Choice", "Turned down")]
    places = [text.find(f"\n{label}") for label in labels]
    assert -1 not in places
    assert places == sorted(places)
    index = (ROOT / "docs/decisions/README.md").read_text()
    title = text.splitlines()[0].partition(" ")[2].partition(" ")[2]
    assert f"[{title}]({name.rpartition('/')[2]})" in index


def test_the_readme_has_exactly_two_commands_and_the_makefile_has_both():
    readme = (ROOT / "README.md").read_text()
    block = readme.split("## Run it")[1].split("```")[1]
    commands = re.findall(r"^(make \w+)", block, re.MULTILINE)
    assert commands == ["make run", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{command.split()[1]}:" in makefile for command in commands)


def test_the_client_of_the_readme_asks_for_a_topic_that_make_run_has():
    readme = (ROOT / "README.md").read_text()
    topics = re.findall(r'name = "(\w+)"', (ROOT / "deploy/run.toml").read_text())
    assert re.findall(r'subscribe\(\["(\w+)"\]\)', readme)[0] in topics
