"""What the documents name exists."""

from __future__ import annotations

import re

import pytest

from tests.helpers.printed.printed_docs import ROOT, SECTIONS, with_printed_sections
from tests.helpers.printed.printed_states import CAUSES, DEAD, PREDECESSORS

DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)


def test_every_file_that_the_architecture_names_exists_below_the_root():
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", (ROOT / "docs/architecture.md").read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_file_that_a_page_names_exists():
    """A path may begin at the root, at a folder in which its page finds files, or at the page."""
    roots = [ROOT, *(ROOT / name for name in ("coordinator", "coordinator/core", "tests", "bench"))]
    missing = [
        f"{name}: {path}"
        for name in DOCUMENTS
        if not name.startswith(("docs/reports/", "CHANGELOG"))
        for path in re.findall(r"`([\w./-]+/[\w.-]+\.py)`", (ROOT / name).read_text())
        if not any((root / path).exists() for root in [*roots, (ROOT / name).parent])
    ]
    assert missing == []


def test_the_index_has_every_page_but_those_that_have_an_index_of_their_own():
    index = (ROOT / "docs/README.md").read_text()
    of_their_own = ("docs/spec/", "docs/decisions/", "docs/reports/")
    pages = [n for n in DOCUMENTS if n.startswith("docs/") and not n.startswith(of_their_own)]
    linked = {f"docs/{link}" for link in re.findall(r"\]\(([\w./-]+\.md)\)", index)}
    assert set(pages) - linked == {"docs/README.md"}


def test_every_folder_of_tests_has_its_line():
    text = (ROOT / "tests/README.md").read_text()
    folders = [p.name for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name[0] not in "_."]
    assert [name for name in folders if f"| `{name}/` |" not in text] == []


@pytest.mark.parametrize(
    "page",
    [
        "operate/operations",
        "operate/pipeline",
        "operate/restore",
        "use/coming-from",
        "use/consul",
        "use/embedding",
        "use/faults",
        "use/testing",
        "use/zookeeper",
    ],
)
def test_a_page_for_users_begins_with_an_example_and_ends_within_three_screens(page):
    lines = (ROOT / f"docs/{page}.md").read_text().splitlines()
    assert len(lines) <= 150, "move what is looked up to a page of docs/reference"
    assert "```" in "\n".join(lines[:25])


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
