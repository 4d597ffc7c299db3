"""Every citation leads somewhere: a page and anchor of ours, or what anybody can look up."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.printed.printed_docs import ROOT

TEXT = (".py", ".md", ".toml", ".txt", ".sh", "Makefile")
CITATION = re.compile(
    r"\bdocs/[\w/.-]+?\.md(?:#[\w-]+(?:(?:,| and| to|, and)\s+(?:#\s)?#[\w-]+)*)?"
)
"""``docs/spec/joining.md#size``, which may go on: ``docs/spec/offsets.md#commit and #expiry``."""
BY_NUMBER = re.compile(
    r"(?<![\w/#.`-])(?:spec|design|specification)(?:'s)?(?:\s+#)?(?:\s+sections?)?(?:\s+#)?\s+\d"
    r"|(?<![\w/#.`-])(?:edges?|deviation|issue)\s+\d|\u00a7\s*\d|\bgroup-protocol\b"
    r"|(?<=\s)\((?:[6-9]|1\d)\.\d{1,2}(?:\.\d)?\)",
    re.IGNORECASE,
)
"""A citation by a number, of pages that nobody can open."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _tracked() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name]
    # an unpacked archive has no git; its files are the project's
    return [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if ".venv" not in path.parts]


FILES = sorted(
    name for name in _tracked() if name.endswith(TEXT) and not name.startswith("constraints")
)
DOCUMENTS = [name for name in FILES if name.endswith(".md") and "/" not in name] + [
    name for name in FILES if name.startswith("docs/") and name.endswith(".md")
]


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _anchors(path: Path) -> frozenset[str]:
    """The explicit anchors of a page, and those that a reader's browser makes of its headings."""
    text = re.sub(r"^```.*?^```", "", _text(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    slugs = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return frozenset([*re.findall(r'<a id="([\w-]+)"></a>', text), *slugs])


def _is_there(page: Path, anchor: str) -> bool:
    return page.is_file() and (not anchor or anchor in _anchors(page))


@pytest.mark.parametrize("name", FILES)
def test_every_citation_of_a_page_names_a_place_that_exists(name):
    lost = []
    for citation in CITATION.findall(_text(ROOT / name)):
        page = citation.partition("#")[0]
        anchors = re.findall(r"#([\w-]+)", citation) or [""]
        lost += [f"{page}#{each}" for each in anchors if not _is_there(ROOT / page, each)]
    assert lost == []


def test_nothing_is_cited_by_a_number_of_a_page_that_cannot_be_opened():
    here = "tests/house/test_citations.py"
    found = [
        f"{name}: {match.group(0)}"
        for name in FILES
        if name != here
        for match in BY_NUMBER.finditer(_text(ROOT / name))
    ]
    assert found == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_of_a_document_lead_to_a_file_and_to_a_place_in_it(name):
    file = ROOT / name
    lost = []
    for link in LINK.findall(
        re.sub(r"^```.*?^```", "", _text(file), flags=re.DOTALL | re.MULTILINE)
    ):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path) if path else file
        wanted = anchor if target.suffix == ".md" else ""
        if not target.exists() or (wanted and wanted not in _anchors(target)):
            lost.append(link)
    assert lost == []


def test_an_anchor_is_given_once():
    for name in DOCUMENTS:
        given = re.findall(r'<a id="([\w-]+)"></a>', _text(ROOT / name))
        assert len(given) == len(set(given)), name
