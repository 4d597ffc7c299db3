"""Checks of what real members reported: who owned a partition when, and where it continued."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.helpers.clients.heartbeat_tape import Ownership
from tests.helpers.clients.members import Event, Host, Member

Partition = tuple[str, int]

OWNERSHIP = ("assigned", "revoked", "lost", "ended")


def check_owners(hosts: Iterable[Host], ownership: Ownership | None = None) -> int:
    """Fail if a partition had two owners at once. Return how many partitions were gained.

    A member owns a partition from the callback that assigns it to the callback that takes it
    away. A member that was killed owns its partitions until its death.

    ``ownership`` is what the members and the coordinator told each other. If by this a member had
    given up a partition, or was removed from the group, another one may have it although the
    callback of the first one comes later. This is printed.
    """
    told: list[Event] = []
    for host in hosts:
        own = [event for event in list(host.events) if event["event"] in OWNERSHIP]
        told += own
        if host.died_ns is not None:
            names = {event["name"] for event in own}
            told += [{"event": "ended", "name": n, "at_ns": host.died_ns} for n in names]
    owners: dict[Partition, str] = {}
    gained = 0
    for event in sorted(told, key=lambda each: each["at_ns"]):
        for partition in _given_up(event, owners):
            if owners.get(partition) == event["name"]:
                del owners[partition]
        for partition in _partitions(event.get("gained", [])):
            owner = owners.setdefault(partition, event["name"])
            if owner != event["name"]:
                may_own = ownership is not None and ownership.had_given_up(
                    owner, partition, event["at_ns"]
                )
                assert may_own, f"{partition} belongs to {owner}: {event}"
                owners[partition] = event["name"]
                sys.stdout.write(f"{owner} had given up {partition} before its callback: {event}\n")
            gained += 1
    return gained


def _given_up(event: Event, owners: dict[Partition, str]) -> list[Partition]:
    if event["event"] == "ended":
        return [each for each, owner in owners.items() if owner == event["name"]]
    return _partitions(event.get("revoked", []) + event.get("lost", []))


def _partitions(told: list[Any]) -> list[Partition]:
    return [(topic, number) for topic, number in told]


def check_offsets(members: Iterable[Member], committed: dict[Partition, int]) -> int:
    """Fail if an acknowledged commit was lost, at a change of owners or at the end. Return how
    many commits were acknowledged.

    The members must have a ``ResumingLoad``. ``committed`` has the group's offsets now.
    """
    members = list(members)
    acknowledged: dict[str, list[tuple[int, int]]] = defaultdict(list)
    count = 0
    for member in members:
        for at_ns, offsets in member.ledger.times:
            count += 1
            for key, offset in offsets.items():
                acknowledged[key].append((at_ns, offset))
    for member in members:
        for event in member.events("resumed"):
            for key, offset in event["offsets"].items():
                before = [o for at_ns, o in acknowledged[key] if at_ns < event["asked_ns"]]
                assert offset >= max(before, default=0), f"{key} went back: {event}"
    for key, told in acknowledged.items():
        if not told:
            continue
        offsets = [offset for _, offset in sorted(told)]
        assert offsets == sorted(set(offsets)), f"{key}: acknowledged out of order: {offsets[-20:]}"
        topic, _, number = key.rpartition(":")
        at = committed.get((topic, int(number)), -1)
        assert at >= offsets[-1], f"{key}: {offsets[-1]} was acknowledged, {at} is there"
    return count


def check_undisturbed(members: Iterable[Member]) -> None:
    """Fail if a member lost partitions without giving them up, or failed.

    franz-go also reports a loss of no partitions, if its connection breaks before it has joined.
    """
    for member in members:
        lost = [event for event in member.events("lost") if event["lost"]]
        assert lost + member.events("failed") == [], f"{lost}\n{member.host.complaint()}"
