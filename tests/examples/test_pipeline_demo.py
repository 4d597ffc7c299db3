"""`make pipeline-demo`, as the README has it, and the parts of it that need no Spark: its zombie,
and the folder that it takes.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from examples import pipeline_demo, pipeline_demo_consumer
from tests.helpers.daemon.stranger import Checkout, Terminal


def lend_packages(checkout: Checkout) -> None:
    """Let pip find in the .venv of a checkout what it would download, half a gigabyte."""
    environment = checkout.path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))


@pytest.mark.spark_long
def test_the_reports_name_all_that_the_consumers_did(tmp_path):
    checkout = Checkout(tmp_path)
    lend_packages(checkout)
    terminal = Terminal(checkout)
    said = terminal.type("make pipeline-demo")
    terminal.close()
    assert "the rewind, the zombie, the reset, the storm: all there, named" in said
    pages = [Path(found) for found in re.findall(r"file://(\S+)", said)]
    assert [page.stem for page in pages if page.stat().st_size] == ["lag", "rebalances", "audit"]
    reports = checkout.path / "var" / "pipeline-demo" / "tables" / "reports"
    assert pipeline_demo.check(reports) == []
    (reports / "audit.json").write_text("[]")
    assert pipeline_demo.check(reports) == [
        "the rewind of billing",
        "the refused commit of the zombie",
        "the reset of nightly",
    ]


class Library:
    """A library that finds out, within one poll, that its member is gone, and joins as another."""

    def __init__(self, config: dict) -> None:
        self.member, self.polls = "first", 0
        self.commits: list[tuple[str, list[int]]] = []
        self.is_closed = False

    def subscribe(self, topics, on_assign, on_revoke, on_lost) -> None:
        self.on_assign, self.on_lost = on_assign, on_lost

    def committed(self, partitions, timeout):
        return [TopicPartition("orders", 0, 1000)]

    def poll(self, seconds: float) -> None:
        self.polls += 1
        held = [TopicPartition("orders", 0)]
        if self.polls == 2:
            self.member = "gone"
            self.on_lost(self, held)
            self.member = "second"
        if self.polls <= 2:
            self.on_assign(self, held)

    def commit(self, *, offsets, asynchronous) -> None:
        self.commits.append((self.member, [part.offset for part in offsets]))
        if self.member == "gone":
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    def close(self) -> None:
        self.is_closed = True


def test_the_zombie_commits_what_it_lost_before_it_is_a_member_again(monkeypatch, capsys):
    monkeypatch.setattr(pipeline_demo_consumer, "Consumer", Library)
    told = iter([[], [], [], ["quit"]])
    monkeypatch.setattr(pipeline_demo_consumer.select, "select", lambda *_: (next(told), [], []))
    monkeypatch.setattr("sys.stdin", io.StringIO("quit\n"))
    reader = pipeline_demo_consumer.Reader("bob", "", "billing", "orders", "400")
    reader.live()
    library = reader.consumer
    assert library.commits == [("first", [1200]), ("gone", [1200]), ("second", [1200])]
    assert capsys.readouterr().out == "refused: UNKNOWN_MEMBER_ID\n"
    assert library.is_closed


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    mine = tmp_path / "thesis.txt"
    mine.write_text("years of work")
    with pytest.raises(SystemExit, match="holds something else"):
        pipeline_demo.emptied(tmp_path)
    assert mine.read_text() == "years of work"


def test_what_an_earlier_demo_left_makes_way(tmp_path):
    folder = tmp_path / "demo"
    for _ in range(2):
        pipeline_demo.emptied(folder)
        assert list(folder.iterdir()) == []
        (folder / "demo.toml").touch()
