"""What `make test-clients` needs and a machine lacks is told, with what to install."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers.clients import ecosystem


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        (ecosystem.java, "no java here: install a JDK"),
        (ecosystem.go, "no go here: install Go"),
        (ecosystem.node, "no node here: install Node.js"),
        (ecosystem.kcat, "install kcat"),
    ],
)
def test_a_missing_tool_is_named_with_what_to_install(tool, line, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ecosystem.Unavailable, match=line):
        tool()


def test_what_was_built_once_is_built_again_only_from_other_sources(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    source.write_text("one")
    built = []

    def build(place):
        built.append(source.read_text())
        (place / "result").write_text(built[-1])

    first = ecosystem.once("thing", [source], build)
    assert ecosystem.once("thing", [source], build) == first
    source.write_text("two")
    second = ecosystem.once("thing", [source], build)
    assert built == ["one", "two"]
    assert [(place / "result").read_text() for place in (first, second)] == ["one", "two"]


def test_a_build_that_fails_leaves_nothing_to_be_taken_for_a_result(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(place):
        (place / "half").write_text("")
        ecosystem.run(["sh", "-c", "echo why; exit 3"])

    with pytest.raises(AssertionError, match=r"3\nwhy"):
        ecosystem.once("thing", [], build)
    assert [left.name for left in ecosystem.cache().iterdir()] == [".lock"]


def test_two_runs_build_one_after_the_other_and_the_same_thing_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    began, go_on = threading.Event(), threading.Event()
    steps = []

    def build(place):
        steps.append("begins")
        began.set()
        assert go_on.wait(60)
        steps.append("ends")

    with ThreadPoolExecutor() as pool:
        one = pool.submit(ecosystem.once, "thing", [], build)
        assert began.wait(60)
        same = pool.submit(ecosystem.once, "thing", [], build)
        other = pool.submit(ecosystem.once, "other", [], build)
        go_on.set()
        assert one.result() == same.result() != other.result()
    assert steps == ["begins", "ends"] * 2
