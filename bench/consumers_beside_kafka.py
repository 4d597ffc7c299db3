"""Compare consumer groups (KIP-848) with those of Apache Kafka, by turns, in one run.

    make bench-consumers        about six minutes
    python -m bench.consumers_beside_kafka --python /usr/bin/python3 --rounds 3

The servers and the load generator are those of ``beside_kafka``, and so is the form of the table.
A member acknowledges an assignment at once. All other heartbeats have a fixed pace, the same on
both sides. The machine must allow a process 20,000 open files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from bench.beside_kafka import WIDTH, OutOfTime, Rows, compared, limited, ratios, spread
from bench.machine import speed
from bench.sides import ROOT, WIDE_TOPICS, Side, started

SECONDS: Final = 2.0
IDLE_SECONDS: Final = 6.0
LIMIT_S: Final = 1_200
"""The limit of the whole run."""
FEW: Final = {"groups": 16, "members": 4}
IDLE: Final = {"groups": 500, "members": 10}
SHARED: Final = 500
"""So many members of one group send their first heartbeat at once."""
CROWD: Final = 10_000
"""The members of one large group. Most of them get no partition."""
CROWD_SECONDS: Final = 6.0
CROWD_RATE: Final = 2_500
"""Heartbeats a second on thousands of connections. Without this limit, a heartbeat would be
answered after the end of the window that counts its CPU time.
"""
CLASSIC_CROWD: Final = {"groups": 80, "members": 100}
"""Our classic groups, with which the heartbeats of the large group are compared. The number of
connections matters more than the number of groups. More members would need more open files.
"""
QUIET: Final = "consumer heartbeat"
"""A heartbeat that changes nothing."""

GOALS: Final = {
    ("heartbeat, groups of 4", "CPU us"): 0.50,
    ("heartbeat, a group of 10,000", "CPU us"): 0.50,
    ("500 members", "until all own their share, ms"): 1.0,
    ("5,000 idle members", "memory, MiB"): 0.15,
}
"""The largest ratio of ours to Kafka's that is good enough."""
CLASSIC_GOAL: Final = 1.15
"""The largest good ratio of the CPU time of our heartbeat to that of our classic heartbeat."""
CLASSIC: Final = {
    "heartbeat, groups of 4": "classic heartbeat, groups of 4",
    "heartbeat, a group of 10,000": "classic heartbeat, 8,000 members",
}
"""Load of heartbeats -> the load of classic heartbeats with which it is compared."""
CROWD_GOAL_S: Final = 30.0
"""How long 10,000 members may take to join one group of ours."""


class Comparison:
    """Runs the rounds, and adds what they find to ``rows``. ``sides`` are both servers,
    ours first.
    """

    def __init__(self, sides: list[Side], rows: Rows) -> None:
        self.sides = sides
        self.rows = rows

    def keep(self, load: str, figure: str, side: Side, value: float) -> None:
        """Add one figure."""
        self.rows[load, figure][side.name].append(value)

    def warm(self) -> None:
        """Make the small groups, and run everything, so that the JVM has compiled Kafka's code."""
        for side in self.sides:
            side.ask(do="open", what="few", **FEW)
            side.ask(**opening("four", **FEW))
            for _ in range(4 if side.name == "Kafka" else 1):
                side.ask(do="requests", what="heartbeat", seconds=SECONDS)
                side.ask(do="requests", what=QUIET, pool="four", seconds=SECONDS)
            for _ in range(3 if side.name == "Kafka" else 1):
                self.share(side)

    def share(self, side: Side) -> float:
        """Let many members join a group at once. Return the time until all own their share."""
        shared = {"groups": 1, "members": SHARED}
        found = side.ask(**opening("shared", topic="wide", every_s=0.1, **shared))
        side.ask(do="close", what="shared")
        return float(found["form_ms"])

    def round(self, number: int) -> None:
        """Measure everything once on each server, except for idle members and the large group."""
        sides = self.sides[:: 1 if number % 2 else -1]
        for side in sides:
            found = side.ask(do="requests", what="heartbeat", seconds=SECONDS)
            self.requests("classic heartbeat, groups of 4", side, found)
            found = side.ask(do="requests", what=QUIET, pool="four", seconds=SECONDS)
            self.requests("heartbeat, groups of 4", side, found)
        for side in sides:
            took_ms = self.share(side)
            self.keep("500 members", "until all own their share, ms", side, took_ms)

    def requests(self, load: str, side: Side, found: dict[str, Any]) -> None:
        """Add the figures of a load of requests."""
        cpu_us = (found["user_s"] + found["system_s"]) / found["requests"] * 1e6
        self.keep(load, "CPU us", side, cpu_us)
        self.keep(load, "p50 us", side, found["p50_us"])
        self.keep(load, "p99 us", side, found["p99_us"])

    def idle(self, rounds: int) -> None:
        """Measure many members that only heartbeat, every three seconds."""
        for side in self.sides:
            side.ask(**opening("idle", every_s=0.5, **IDLE))
        for number in range(rounds):
            for side in self.sides[:: 1 if number % 2 else -1]:
                beats = {"what": QUIET, "pool": "idle", "every_s": 3.0}
                found = side.ask(do="idle", seconds=IDLE_SECONDS, **beats)
                cores = (found["user_s"] + found["system_s"]) / found["seconds"]
                self.keep("5,000 idle members", "cores", side, cores)
                self.keep("5,000 idle members", "memory, MiB", side, found["resident_mib"])
        for side in self.sides:
            side.ask(do="close", what="idle")

    def crowd(self, rounds: int) -> None:
        """Let 10,000 members join one group, and measure their heartbeats."""
        for side in self.sides:
            crowd = {"groups": 1, "members": CROWD}
            found = side.ask(**opening("crowd", topic="wide", every_s=2.0, **crowd))
            self.keep("a group of 10,000", "until all own their share, ms", side, found["form_ms"])
            self.keep("a group of 10,000", "CPU of it, ms", side, found["cpu_ms"])
        ours, pace = self.sides[0], {"seconds": CROWD_SECONDS, "rate": CROWD_RATE}
        ours.ask(do="open", what="classic crowd", **CLASSIC_CROWD)
        for number in range(rounds):
            for side in self.sides[:: 1 if number % 2 else -1]:
                found = side.ask(do="requests", what=QUIET, pool="crowd", **pace)
                self.requests("heartbeat, a group of 10,000", side, found)
            found = ours.ask(do="requests", what="heartbeat", pool="classic crowd", **pace)
            self.requests("classic heartbeat, 8,000 members", ours, found)


def opening(what: str, topic: str = "bench", every_s: float = 0.05, **sizes: int) -> dict[str, Any]:
    """Return the order to the load generator that makes groups, and waits until each member has its
    share.
    """
    order = {"do": "open consumers", "what": what, "topic": topic, "every_s": every_s}
    return order | {"partitions": WIDE_TOPICS[topic]} | sizes


def show(rows: Rows) -> int:
    """Print the table. Return the number of goals that were missed or not measured."""
    head = "".join(f"{name:>{WIDTH}}" for name in ("ours", "Kafka"))
    print(f"{'load':32} {'figure':30} {head}  ours/Kafka")
    goals = dict(GOALS)
    missed = 0
    for (load, figure), row in rows.items():
        cells = "".join(spread(row[name]) for name in ("ours", "Kafka"))
        text, is_missed = "", False
        if load != "the machine":
            found = ratios(rows, load, figure, "Kafka")
            text, is_missed = compared(found, goals.pop((load, figure), None))
        missed += is_missed
        print(f"{load:32} {figure:30} {cells}  {text}".rstrip())
    for load, figure in goals:
        print(f"{load:32} {figure:30} not measured")
    return missed + len(goals) + show_ours(rows)


def show_ours(rows: Rows) -> int:
    """Print the figures that have a goal of their own. Return how many goals were missed."""
    missed = 0
    for load, other in CLASSIC.items():
        ours, classic = (rows[each, "CPU us"]["ours"] for each in (load, other))
        found = [a / b for a, b in zip(ours, classic, strict=False)]
        text, is_missed = compared(found, CLASSIC_GOAL)
        print(f"{load}, beside our {other}: {text}")
        missed += is_missed
    joined = rows["a group of 10,000", "until all own their share, ms"]["ours"]
    text, is_missed = compared([each / 1_000 for each in joined], CROWD_GOAL_S)
    print(f"10,000 members join one group, s: {text}")
    return missed + is_missed


def compare(comparison: Comparison, rounds: int) -> None:
    """Run everything, and say on standard error how long each part took."""
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:4.0f} s  {what}", file=sys.stderr, flush=True)

    comparison.warm()
    say("warm")
    for number in range(rounds):
        comparison.round(number)
        say(f"round {number + 1} of {rounds}")
    comparison.idle(rounds)
    say("idle members")
    comparison.crowd(rounds)
    say("a group of 10,000")


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(prog="bench.consumers_beside_kafka")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the daemon")
    chosen = parser.parse_args()
    version = subprocess.run([chosen.python, "-VV"], capture_output=True, text=True, check=True)
    print(f"{version.stdout.strip()}, {chosen.python}", flush=True)
    (ROOT / "var").mkdir(exist_ok=True)
    rows: Rows = defaultdict(lambda: defaultdict(list))
    try:
        with (
            limited(LIMIT_S),
            tempfile.TemporaryDirectory(dir=ROOT / "var") as name,
            started(Path(name), chosen.python, WIDE_TOPICS) as sides,
        ):
            for what, figure in speed(Path(name)).items():
                rows["the machine", what]["ours"].append(figure)
            compare(Comparison([sides["ours"], sides["Kafka"]], rows), chosen.rounds)
    except OutOfTime as over:
        print(f"{over}: the rounds before it")
    missed = show(rows)
    if missed:
        print(f"{missed} goals missed or not measured")


if __name__ == "__main__":
    main()
