"""The members and topics that a group waits for, as groupkeeper sends them to our own command line.

It sends them as JSON in the error message of a group's description
(``coordinator/handlers/waiting_text.py``). Other brokers send no such message.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AwaitedReport:
    """A member that the group waits for. The client is empty if the member id has not joined
    yet.
    """

    member_id: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """The members and topics that the group waits for. Times are ms since the epoch. Only
    groupkeeper reports it.
    """

    awaited: list[AwaitedReport]
    since_ms: int
    until_ms: int
    awaited_left_out: int = 0
    """The number of awaited members that did not fit into the answer."""


def details_of(answer: Any) -> Any:
    """Return the details of a described group. Raises ValueError if there are none."""
    return json.loads(getattr(answer, "error_message", None) or "")


def waiting_of(answer: Any) -> WaitingReport | None:
    """Return the members and topics that a described group waits for.

    Return None if it waits for nothing, or if the broker does not report it.
    """
    with suppress(ValueError, TypeError, KeyError):
        details = details_of(answer)
        if details["until_ms"] is not None:
            awaited = [AwaitedReport(**member) for member in details["awaited"]]
            left_out = details.get("awaited_left_out", 0)
            return WaitingReport(awaited, details["since_ms"], details["until_ms"], left_out)
    return None
