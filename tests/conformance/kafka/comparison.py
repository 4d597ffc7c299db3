"""Two answers to one request, compared field by field.

What each side makes up by itself is a UUID: member ids hold one, topic ids are one. They are mapped
by a bijection over a whole case: the first time that two meet in the same place they become a pair,
and from then on neither may stand for another. The text of a message is reduced to null, empty or
present. Order is ignored only for the arrays that Kafka fills from a hash map
(docs/spec/wire.md#frames).

Cases share their servers, and some make a group on one side alone. So of what tells of every group
there is, only the case's own groups are compared, whoever asked and however; configs of client
metrics are named as groups are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")
"""The id that Kafka gives a classic member of a consumer group: a UUID in base64. Ours begins with
the id of the client, as in a classic group.
"""
TEXTS = frozenset({"message", "error_message", "documentation"})

UNORDERED = frozenset(
    {
        ("join_group", "members"),
        ("describe_groups", "groups"),  # by shard
        ("describe_groups", "groups.members"),
        ("list_groups", "groups"),
        ("delete_groups", "results"),
        ("offset_fetch", "topics"),
        ("offset_fetch", "topics.partitions"),
        ("offset_fetch", "groups.topics"),
        ("offset_fetch", "groups.topics.partitions"),
        ("list_offsets", "topics"),  # unknown topics come first
        ("list_offsets", "topics.partitions"),
        ("produce", "responses"),
        ("produce", "responses.partition_responses"),
        ("metadata", "topics"),
        ("create_topics", "topics"),  # topics that the controller is not asked for come last
        ("create_partitions", "results"),
        ("delete_topics", "responses"),
        ("describe_configs", "results.configs"),
        ("list_config_resources", "config_resources"),
        ("consumer_group_heartbeat", "assignment.topic_partitions"),
        ("consumer_group_heartbeat", "assignment.topic_partitions.partitions"),
        ("consumer_group_describe", "groups"),  # by shard
        ("consumer_group_describe", "groups.members"),
        ("consumer_group_describe", "groups.members.subscribed_topic_names"),
        ("consumer_group_describe", "groups.members.assignment.topic_partitions"),
        ("consumer_group_describe", "groups.members.assignment.topic_partitions.partitions"),
        ("consumer_group_describe", "groups.members.target_assignment.topic_partitions"),
        ("consumer_group_describe", "groups.members.target_assignment.topic_partitions.partitions"),
    }
)
"""API and array whose order is that of a hash map in Kafka."""

TOPIC, CLIENT_METRICS, GROUP = 2, 16, 32


def _case_of_config(resource: dict[str, Any]) -> str | None:
    kind = resource.get("resource_type", CLIENT_METRICS)  # version 0 lists nothing else
    return resource["resource_name"] if kind in (TOPIC, CLIENT_METRICS, GROUP) else None


GROUPS_OF_ALL: dict[str, tuple[str, Callable[[dict[str, Any]], str | None]]] = {
    "list_groups": ("groups", lambda group: group["group_id"]),
    "list_config_resources": ("config_resources", _case_of_config),
}
"""APIs that tell of all cases' groups: in which array, and by whose name, if any's."""

CLOSED: dict[str, Any] = {"connection": "closed"}
PARKED: dict[str, Any] = {"connection": "waits"}
ON_TIME: dict[str, Any] = {"at": 0}
"""Stands for Kafka's answer where both came, one of them much later."""


@dataclass(frozen=True)
class Difference:
    """One field that differs, or one answer that came to one side alone."""

    case: str
    request: str
    api: str
    version: int
    field: str
    """A path without indices, ``topics.partitions.error_code``; ``""`` for the whole answer."""
    kafka: Any
    ours: Any
    given_up_by: str = ""
    """Of an answer that came to one side alone: the API of the request that left the answered one
    to wait in vain (``Sent.given_up_by``); ``""`` where none did.
    """
    answer: int = 0
    """Which of the case's answers it is in."""

    def __str__(self) -> str:
        return (
            f"{self.case}: {self.request}\n"
            f"  {self.field or 'the answer'}\n"
            f"    Kafka: {_shown(self.kafka)}\n    ours:  {_shown(self.ours)}"
        )


class Comparison:
    """All that was compared in one case, and which id stands for which.

    ``own`` is what the names of all groups of the case begin with, and no other's.
    """

    def __init__(self, case: str, own: str, ports: tuple[int, int]) -> None:
        self.case = case
        self.answers = 0
        self.differences: list[Difference] = []
        self._own = own
        self._ports = ports
        self._to_ours: dict[str, str] = {}
        self._to_kafka: dict[str, str] = {}

    def pair(self, kafka: str, ours: str) -> bool:
        """Let two ids stand for each other; says whether neither stands for another."""
        if kafka in self._to_ours or (TOKEN.fullmatch(kafka) and UUID.search(ours)):
            both = self._to_ours.setdefault(kafka, ours), self._to_kafka.setdefault(ours, kafka)
            return both == (ours, kafka)
        found = UUID.findall(kafka), UUID.findall(ours)
        if len(found[0]) != len(found[1]) or UUID.sub("", kafka) != UUID.sub("", ours):
            return False
        for theirs, mine in zip(*found, strict=True):
            if self._to_ours.setdefault(theirs, mine) != mine:
                return False
            if self._to_kafka.setdefault(mine, theirs) != theirs:
                return False
        return True

    def stands_for(self, kafka: str, ours: str) -> bool:
        """Say whether two ids are known to be one, without making them so."""
        if self._to_ours.get(kafka) == ours:
            return True
        return UUID.sub(lambda m: self._to_ours.get(m[0], "?"), kafka) == ours

    def of_side(self, kafka: str, side: int) -> str:
        """The id of a side that is Kafka's id of the other, if that is known."""
        return kafka if side == 0 else self._to_ours.get(kafka, kafka)

    def compare(
        self, request: str, api: str, version: int, kafka: Any, ours: Any, *, given_up_by: str = ""
    ) -> None:
        """Compare the two answers to one request, which another may have left to wait in vain."""
        self.answers += 1
        kafka, ours = self._of_this_case(api, kafka), self._of_this_case(api, ours)
        for path, theirs, mine in self._fields(api, "", kafka, ours):
            self.differences.append(
                Difference(
                    *(self.case, request, api, version, path, theirs, mine, given_up_by),
                    answer=self.answers,
                )
            )

    def _of_this_case(self, api: str, answer: Any) -> Any:
        """The answer without other cases' groups: each side has them at another moment."""
        array, group_of = GROUPS_OF_ALL.get(api, ("", None))
        if group_of is None or array not in answer:
            return answer
        groups = [(one, group_of(one)) for one in answer[array]]
        kept = [one for one, name in groups if name is None or name.startswith(self._own)]
        return {**answer, array: kept}

    def _fields(self, api: str, path: str, kafka: Any, ours: Any) -> list[tuple[str, Any, Any]]:
        if isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys():
            return [
                found
                for name in kafka
                for found in self._fields(
                    api, f"{path}.{name}".lstrip("."), kafka[name], ours[name]
                )
            ]
        if isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
            if (api, path) in UNORDERED:
                kafka = sorted(kafka, key=lambda item: self._order(item, self._to_ours, 0))
                ours = sorted(ours, key=lambda item: self._order(item, self._to_kafka, 1))
            return [
                found
                for theirs, mine in zip(kafka, ours, strict=True)
                for found in self._fields(api, path, theirs, mine)
            ]
        return [] if self._equal(path.rpartition(".")[2], kafka, ours) else [(path, kafka, ours)]

    def _equal(self, name: str, kafka: Any, ours: Any) -> bool:
        if isinstance(kafka, str) and isinstance(ours, str):
            if name in TEXTS:
                return bool(kafka) == bool(ours)
            return self.pair(kafka, ours)
        if name == "port" and (kafka, ours) == self._ports:
            return True
        return bool(kafka == ours) and type(kafka) is type(ours)

    def _order(self, item: Any, known: dict[str, str], side: int) -> str:
        """Where an element stands: both sides' known ids by Kafka's, unknown ones last."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {k: plain(v) for k, v in value.items() if k not in TEXTS}
            if isinstance(value, list):
                return sorted((plain(v) for v in value), key=str)
            if isinstance(value, str):
                if side == 1 and value in known:
                    return known[value]
                of = (lambda m: m[0] if m[0] in known else "~") if side == 0 else None
                return UUID.sub(of or (lambda m: known.get(m[0], "~")), value)
            return value if not isinstance(value, bytes) else value.hex()

        return json.dumps(plain(item), default=str)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))
    return text if len(text) < 1_500 else text[:1_500] + "…"
