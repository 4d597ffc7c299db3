"""Reads the members that a group waits for from the description of the group.

groupkeeper sends them as JSON in the field ErrorMessage of the description, together with the
subscribed topics (``coordinator/handlers/waiting_text.py``). Other brokers send no such message.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AwaitedReport:
    """A member that the group waits for. ``client_id`` and ``client_host`` are empty if a client
    got this member id, but has not joined with it yet.
    """

    member_id: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """The members that the group waits for, since when, and until when at the latest. The times are
    ms since the epoch.
    """

    awaited: list[AwaitedReport]
    since_ms: int
    until_ms: int
    awaited_left_out: int = 0
    """The number of awaited members that did not fit into the answer."""


def details_of(answer: Any) -> Any:
    """Return the JSON in the error message of a described group. Raises ValueError if there is
    none.
    """
    return json.loads(getattr(answer, "error_message", None) or "")


def waiting_of(answer: Any) -> WaitingReport | None:
    """Return the members that a described group waits for.

    Return None if the group waits for no member, or if the broker does not report this.
    """
    with suppress(ValueError, TypeError, KeyError):
        details = details_of(answer)
        if details["until_ms"] is not None:
            awaited = [AwaitedReport(**member) for member in details["awaited"]]
            left_out = details.get("awaited_left_out", 0)
            return WaitingReport(awaited, details["since_ms"], details["until_ms"], left_out)
    return None
