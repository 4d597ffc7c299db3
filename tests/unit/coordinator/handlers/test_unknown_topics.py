"""The log line for a topic that a client asks for and that is not there."""

from __future__ import annotations

from structlog.testing import capture_logs

from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.handlers.unknown_topics import (
    LINES_PER_WINDOW,
    MAX_CANDIDATES,
    TOPIC_WINDOW_S,
    WINDOW_S,
    UnknownTopicLog,
    nearest_topic,
)
from groupkeeper.coordinator.runtime.line_limit import MAX_KEYS

CLIENT = Client("billing-1", "/192.0.2.7")
KNOWN = {"orders": 1, "clicks": 2}


class Asked:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.log = UnknownTopicLog(lambda: self.now_s)

    def ask(self, *names: str) -> list[dict]:
        with capture_logs() as lines:
            self.log.asked(names, CLIENT, KNOWN)
        return lines


def test_the_line_names_the_topic_the_nearest_one_and_who_asked() -> None:
    assert Asked().ask("oders") == [
        {
            "event": "unknown_topic_asked",
            "log_level": "warning",
            "topic": "oders",
            "nearest": "orders",
            "client_id": "billing-1",
            "client_host": "/192.0.2.7",
            "left_out": 0,
        }
    ]


def test_nothing_alike_has_no_nearest() -> None:
    (line,) = Asked().ask("shipments")
    assert line["nearest"] is None


def test_a_topic_is_named_once_in_ten_minutes() -> None:
    asked = Asked()
    assert len(asked.ask("oders")) == 1
    asked.now_s = TOPIC_WINDOW_S - 1
    assert asked.ask("oders") == []
    asked.now_s = TOPIC_WINDOW_S
    assert len(asked.ask("oders")) == 1


def test_a_flood_of_names_is_no_flood_of_lines_and_none_is_remembered_for_ever() -> None:
    asked = Asked()
    lines = sum(len(asked.ask(f"topic-{n}")) for n in range(3 * MAX_KEYS))
    assert lines <= LINES_PER_WINDOW
    assert len(asked.log._lines._keys._windows) <= MAX_KEYS
    asked.now_s = WINDOW_S
    (line,) = asked.ask("one-more")
    assert line["left_out"] == 3 * MAX_KEYS - LINES_PER_WINDOW


def test_the_nearest_is_looked_for_among_so_many() -> None:
    many = [f"topic-{n:06}" for n in range(100 * MAX_CANDIDATES)]
    assert nearest_topic("topic-00001", many) in many


def test_a_topic_that_others_left_no_line_for_has_one_when_it_is_asked_for_again() -> None:
    asked = Asked()
    for number in range(LINES_PER_WINDOW):
        asked.ask(f"topic-{number}")
    assert asked.ask("oders") == []
    asked.now_s = WINDOW_S
    assert [line["topic"] for line in asked.ask("oders")] == ["oders"]
