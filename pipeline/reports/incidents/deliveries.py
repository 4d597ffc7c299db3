"""Chooses the incidents to post to a webhook: those that began or ended since the last post
(pure).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from groupkeeper.pipeline.reports.incidents.find import FoundIncidents

Incident = dict[str, Any]

BEGAN: Final = "began"
ENDED: Final = "ended"


@dataclass(frozen=True)
class Told:
    """The open incidents that the webhook has accepted. A file keeps them between runs."""

    as_of_ms: int | None = None
    """The time of the newest row of the tables at the last post; None if there was no post."""
    open: Sequence[Incident] = ()

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, "as_of_ms": self.as_of_ms, "open": list(self.open)}

    @classmethod
    def of_json(cls, kept: dict[str, Any]) -> Told:
        """Parse the content of the file. Raises ValueError if its format is not known."""
        if kept.get("format") != 1:
            raise ValueError(f"format {kept.get('format')} is not known")
        return cls(kept["as_of_ms"], kept["open"])


def news(told: Told, found: FoundIncidents) -> list[Incident]:
    """Return the incidents to post, each with the field ``event``: ``began`` or ``ended``.

    An incident that began and ended between two posts is posted once, as ended. The first post has
    only open incidents.
    """
    before = {each["id"]: each for each in told.open}
    now = {each["id"]: each for each in found.open}
    began = [{**each, "event": BEGAN} for key, each in now.items() if key not in before]
    over: dict[str, Incident] = {}
    for each in found.incidents:
        if each["state"] == "over" and _is_new(each, told, before) and each["id"] not in now:
            over.setdefault(each["id"], each)
    # an incident is not found again if its group was deleted, or its days are not searched now
    gone = {key: each for key, each in before.items() if key not in now and key not in over}
    ended = [{**each, "state": "over", "event": ENDED} for each in (over | gone).values()]
    return [*began, *ended]


def _is_new(incident: Incident, told: Told, before: dict[str, Incident]) -> bool:
    if incident["id"] in before:
        return True
    return told.as_of_ms is not None and incident["last_ms"] > told.as_of_ms


def after(found: FoundIncidents) -> Told:
    """Return what to keep after the webhook has accepted the messages about ``found``."""
    return Told(found.as_of_ms, found.open)
