"""Random requests of three members to a real Apache Kafka and to the daemon, answers compared.

    python -m tests.conformance.differential_generated KAFKA_PORT OUR_PORT FIRST_SEED COUNT

Run by hand. After each request both sides get time until the same members have been answered, so a
join that is parked here must be parked there. Timeouts are long: no timer fires in a world. Kafka
picks a new leader in no order that one could foresee; a world that gets to that point ends there.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
import uuid
from typing import Any

from tests.conformance.differential_side import TOPIC, Side
from tests.helpers.raw_client import RawClient

MEMBERS = 3
STEPS = 40
PATIENCE_S = 1.0
"""How long two sides may differ in who has been answered."""


class World:
    """One side: a connection for each member, and who waits for an answer."""

    def __init__(self, port: int, group: str) -> None:
        self.side = Side(port)
        self.group = group
        self.clients = [RawClient(port, client_id="differential") for _ in range(MEMBERS)]
        self.ids = [""] * MEMBERS
        self.generations = [-1] * MEMBERS
        self.waiting: dict[int, tuple[str, int, int]] = {}
        self.leader = ""

    def send(self, member: int, api: str, version: int, values: dict[str, Any]) -> None:
        filled = {**values, "group_id": self.group}
        if "generation" in filled:
            generation = self.generations[member] + filled.pop("generation")
            filled["generation_id"] = filled["generation_id_or_member_epoch"] = generation
        if filled.pop("as_member", False):
            filled["member_id"] = self.ids[member]
        if filled.pop("leave", False):
            filled["members"] = [{"member_id": self.ids[member]}]
        if filled.pop("assign", False):
            filled["assignments"] = [
                {"member_id": m, "assignment": bytes([n])} for n, m in enumerate(self.ids) if m
            ]
        self.waiting[member] = (api, version, self.clients[member].send(api, version, **filled))

    def collect(self, wait_s: float) -> dict[int, dict[str, Any]]:
        """The answers that are there."""
        sockets = {self.clients[m].socket: m for m in self.waiting}
        ready, _, _ = select.select(list(sockets), [], [], wait_s)
        answers = {}
        for member in sorted(sockets[s] for s in ready):
            api, version, correlation_id = self.waiting.pop(member)
            answer = self.clients[member].receive(api, version, correlation_id)
            if api == "join_group" and answer["member_id"]:
                self.ids[member] = answer["member_id"]
            if api == "join_group" and answer["error_code"] == 0:
                self.generations[member] = answer["generation_id"]
                self.leader = answer["leader"]
            answers[member] = answer
        return answers

    def describe(self) -> Any:
        answer = self.side.client.call("describe_groups", 5, groups=[self.group])
        return self.side.comparable(answer)

    def close(self) -> None:
        self.side.close()
        for client in self.clients:
            client.close()


def draw_request(draw: random.Random, *, static: bool) -> tuple[str, int, dict[str, Any]]:
    generation = draw.choice((0, 0, 0, 0, -1, 1))
    match draw.choice(("join", "join", "join", "sync", "sync", "heartbeat", "leave", "commit")):
        case "join":
            version = draw.choice((3, 4, 5, 9))
            metadata = draw.choice((b"a", b"a", b"a", b"b"))
            return (
                "join_group",
                version,
                {
                    "as_member": draw.random() < 0.8,
                    "session_timeout": 30_000,
                    "rebalance_timeout": 60_000,
                    "protocol_type": "test",
                    "protocols": [{"name": "any", "metadata": metadata}],
                    "static": static and version >= 5,
                },
            )
        case "sync":
            return (
                "sync_group",
                3,
                {
                    "generation": generation,
                    "as_member": True,
                    "assign": draw.random() < 0.7,
                },
            )
        case "heartbeat":
            return "heartbeat", 4, {"generation": generation, "as_member": True}
        case "leave":
            return "leave_group", 3, {"leave": True}
        case _:
            part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
            return (
                "offset_commit",
                8,
                {
                    "generation": generation,
                    "as_member": draw.random() < 0.9,
                    "topics": [{"name": TOPIC, "partitions": [part]}],
                },
            )


def one_world(ports: list[int], seed: int) -> tuple[int, str | None]:
    """Returns the requests compared, and the first difference."""
    draw = random.Random(seed)
    static = draw.random() < 0.4
    group = f"world-{seed}-{uuid.uuid4().hex[:6]}"
    worlds = [World(port, group) for port in ports]
    trace: list[str] = []
    try:
        for step in range(STEPS):
            member = draw.randrange(MEMBERS)
            api, version, values = draw_request(draw, static=static)
            if values.pop("static", False):
                values["group_instance_id"] = f"instance-{member}"
            if any(member in world.waiting for world in worlds):
                continue
            trace.append(f"{step}: member {member} {api} v{version} {values}")
            for world in worlds:
                world.send(member, api, version, dict(values))
            answers = _settle(worlds)
            for world, got in zip(worlds, answers, strict=True):
                world.side.comparable([got[m] for m in sorted(got)])  # learns the new ids first
            compared = [
                [(m, w.side.comparable(a)) for m, a in sorted(got.items())]
                for w, got in zip(worlds, answers, strict=True)
            ]
            trace.append(f"   -> {compared[0]}")
            shown = [world.describe() for world in worlds]
            if compared[0] != compared[1] or shown[0] != shown[1]:
                if worlds[0].side.comparable(worlds[0].leader) != worlds[1].side.comparable(
                    worlds[1].leader
                ):
                    return step, None  # another leader was chosen
                theirs, ours = (json.dumps([c, s]) for c, s in zip(compared, shown, strict=True))
                return step, "\n".join([*trace[-16:], f"  Kafka: {theirs}", f"  ours:  {ours}"])
        return STEPS, None
    finally:
        for world in worlds:
            world.close()


def _settle(worlds: list[World]) -> list[dict[int, dict[str, Any]]]:
    """Take answers until the same members have been answered and nothing more comes at once."""
    answers: list[dict[int, dict[str, Any]]] = [{} for _ in worlds]
    give_up = time.monotonic() + PATIENCE_S
    while True:
        new = 0
        for world, got in zip(worlds, answers, strict=True):
            found = world.collect(0.03)
            got.update(found)
            new += len(found)
        even = worlds[0].waiting.keys() == worlds[1].waiting.keys()
        if (even and not new) or time.monotonic() > give_up:
            return answers


def main() -> None:
    ports = [int(port) for port in sys.argv[1:3]]
    first, count = (int(number) for number in sys.argv[3:5])
    bad = requests = 0
    for seed in range(first, first + count):
        steps, difference = one_world(ports, seed)
        requests += steps
        if difference:
            bad += 1
            sys.stdout.write(f"--- seed {seed}\n{difference}\n")
    sys.stdout.write(f"{count} worlds, {requests} steps, {bad} differ\n")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
