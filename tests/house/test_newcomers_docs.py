"""What a newcomer reads is what is there: snippets, options, commands."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields

import pytest

from groupkeeper.coordinator.daemon.config_load import load_settings
from groupkeeper.coordinator.daemon.metrics import DEFINITIONS
from groupkeeper.coordinator.testkit.server import (
    GroupkeeperServer,
    ServerOptions,
    SyncGroupkeeperServer,
)
from tests.helpers.printed.printed_docs import ROOT

QUICKSTART = (ROOT / "docs" / "start" / "quickstart.md").read_text()
TROUBLES = (ROOT / "docs" / "operate" / "troubleshooting.md").read_text()
TESTING = (ROOT / "docs" / "reference" / "testing-server.md").read_text()
OF_THE_SYSTEM = {"cannot listen there (Address already in use)"}
"""Half of it is the operating system's."""
SNIPPET = re.compile(r"<!-- from: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
CLIENTS = (ROOT / "docs" / "start" / "clients.md").read_text()
SNIPPETS = SNIPPET.findall(QUICKSTART + CLIENTS)
EMBEDDING = (ROOT / "docs" / "use" / "embedding.md").read_text()


def test_there_is_a_snippet_for_each_of_four_languages():
    assert [name.rsplit(".")[-1] for name, _ in SNIPPETS] == ["py", "java", "go", "js"]


@pytest.mark.parametrize(("name", "snippet"), [*SNIPPETS, *SNIPPET.findall(EMBEDDING)])
def test_a_snippet_is_a_piece_of_the_file_that_was_run(name, snippet):
    assert snippet in (ROOT / name).read_text()


def test_the_settings_of_the_quick_start_are_valid(tmp_path):
    (text,) = re.findall(r"<<'TOML'\n(.*?)TOML\n", QUICKSTART, re.DOTALL)
    file = tmp_path / "groupkeeper.toml"
    file.write_text(text)
    settings = load_settings(file).settings
    assert [(topic.name, topic.partitions) for topic in settings.static.topics] == [("orders", 12)]
    assert settings.kafka.listen == "127.0.0.1:9092"


def test_everyone_says_the_same_of_how_long_the_demo_takes():
    places = [ROOT / name for name in ("README.md", "docs/start/quickstart.md", "Makefile")]
    told = {
        place.name: set(re.findall(r"(half a minute|quarter of a minute)", text.lower()))
        for place in [*places, ROOT / "examples" / "demo.py"]
        for text in [place.read_text()]
    }
    assert told == {name: {"half a minute"} for name in told}


def test_every_option_of_a_server_for_tests_is_documented_with_its_default():
    table = TESTING.partition("<!-- options -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table, re.MULTILINE)
    defaults = [
        (each.name, repr(each.default_factory() if each.default is MISSING else each.default))
        for each in fields(ServerOptions)
    ]
    assert rows == defaults


def test_every_name_that_the_testing_page_gives_to_a_server_exists():
    table = TESTING.partition("| on both |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    assert {"bootstrap", "committed", "restart"} <= names
    assert [
        name for name in names - {"coordinator"} if not hasattr(SyncGroupkeeperServer, name)
    ] == []


def test_the_testing_page_says_which_calls_of_the_asynchronous_server_are_awaited():
    table = TESTING.partition("| on both |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) \|$", table, re.MULTILINE)
    said = {name: last for first, last in rows for name in re.findall(r"`(\w+)", first)}
    public = {name for name in dir(GroupkeeperServer) if not name.startswith("_")}
    assert said.keys() == public
    awaited = {n for n in public if inspect.iscoroutinefunction(getattr(GroupkeeperServer, n))}
    assert {name for name, last in said.items() if last == "`await`"} == awaited


def test_what_a_person_sees_is_quoted_as_the_code_says_it():
    """The first column of "What to do when": messages, metrics, paths."""
    seen = [row.split(" | ")[0] for row in re.findall(r"^\| (.*) \|$", TROUBLES, re.MULTILINE)]
    quoted = {text for cell in seen for text in re.findall(r"`([^`]+)`", cell)}
    metrics = {text for text in quoted if text.startswith("groupkeeper_")}
    assert len(metrics) > 6
    known = {definition.full_name for definition in DEFINITIONS}
    assert {text.split("{")[0] for text in metrics} <= known
    sources = [*ROOT.glob("coordinator/**/*.py"), *ROOT.glob("storage/**/*.py")]
    # two adjacent strings of the source are one message
    said = re.sub(r'"\s*f?"', "", "".join(path.read_text() for path in sources))
    messages = sorted(quoted - metrics)
    assert len(messages) > 12
    assert [text for text in messages if text not in said and text not in OF_THE_SYSTEM] == []
