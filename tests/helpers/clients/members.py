"""The test's side of ``member_host.py``: real clients as members of a group, and their events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.helpers.clients import ecosystem

WAIT_LIMIT_S = 60
"""The time after which a test fails if an event has not come. This is no assertion about speed."""

ALL_CLIENTS = ("aiokafka", "librdkafka", "kafka-python")
COOPERATIVE_CLIENTS = ("librdkafka", "kafka-python")

LOAD_EVENTS = ("committing", "acknowledged", "unacknowledged")
"""Events that are too many to keep. They are recorded in a ``Ledger``."""

Event = dict[str, Any]


class Ledger:
    """The offsets that a member under load sent, and those that were acknowledged, by (topic,
    partition).
    """

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], set[int]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.times: list[tuple[int, dict[str, int]]] = []
        """[(wall time in ns, {"topic:partition": offset})] of each acknowledged commit."""
        self.open = False
        """True while a commit is in flight."""
        self.count = 0

    def note(self, event: Event) -> None:
        """Record one of ``LOAD_EVENTS``."""
        self.open = event["event"] == "committing"
        for key, offset in event.get("offsets", {}).items():
            topic, _, partition = key.rpartition(":")
            if self.open:
                self.sent.setdefault((topic, int(partition)), set()).add(offset)
            else:
                self.acknowledged[(topic, int(partition))] = offset
        if event["event"] == "acknowledged":
            self.count += 1
            self.times.append((event["at_ns"], event["offsets"]))


def _program(client: str) -> list[str]:
    """Return the command of a process with members of this library, without its HOST:PORT."""
    if client == "java":
        return ecosystem.java_members()
    if client == "franz-go":
        return [*ecosystem.go(), "members"]
    return [sys.executable, "-m", "tests.helpers.clients.member_host", client]


class Host:
    """A process with members of one client library in it."""

    def __init__(self, client: str, bootstrap: str, diary: Path | None = None) -> None:
        """``diary`` is a file that gets every line that the process writes."""
        self.client = client
        self.bootstrap = bootstrap
        self._diary = diary
        self.events: list[Event] = []
        self.ledgers: dict[str, Ledger] = {}
        self.changed = threading.Condition()
        self.died_ns: int | None = None
        """The wall time in ns at which a test killed the process; None if it was not killed."""
        self._process = subprocess.Popen(
            [*_program(client), bootstrap],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if self._diary is not None:
                with self._diary.open("a") as diary:
                    diary.write(line)
            event = json.loads(line)
            with self.changed:
                if event["event"] in LOAD_EVENTS:
                    self.ledgers.setdefault(event["name"], Ledger()).note(event)
                else:
                    self.events.append(event)
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def join(self, name: str, group: str, topics: list[str], **options: Any) -> Member:
        """Start a member, without waiting for its join. Return its handle."""
        self.order(op="join", name=name, group=group, topics=topics, **options)
        return Member(self, name, group, options.get("instance"))

    def kill9(self) -> None:
        """Kill the process, so that no member in it can leave its group."""
        self._process.kill()
        self.died_ns = time.time_ns()
        self._finish()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """End the process. Fixtures call this."""
        if self._process.poll() is None:
            self.kill9()
        else:
            self._finish()

    def _finish(self) -> None:
        self._process.wait()
        for reader in self._readers:
            reader.join(10)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def complaint(self) -> str:
        """Return its last events and errors, for the message of a failed test."""
        tail = "\n".join(json.dumps(event) for event in self.events[-30:])
        return f"{self.client} host:\n{tail}\n{''.join(self._errors)[-3000:]}"


class Member:
    """One group member in a host."""

    def __init__(self, host: Host, name: str, group: str, instance: str | None) -> None:
        self.host = host
        self.name = name
        self.group = group
        self.instance = instance
        self._tags = 0

    def events(self, *kinds: str) -> list[Event]:
        """Return its events until now, oldest first."""
        return [
            e
            for e in list(self.host.events)
            if e["name"] == self.name and (not kinds or e["event"] in kinds)
        ]

    @property
    def held(self) -> set[tuple[str, int]]:
        """Return the partitions that it owns, as its own events say."""
        told = self.events("assigned", "revoked", "lost")
        return (
            {(topic, partition) for topic, partition in told[-1]["partitions"]} if told else set()
        )

    @property
    def rebalances(self) -> int:
        """Return how many assignments it got."""
        return len(self.events("assigned"))

    def identity(self) -> dict[str, Any]:
        """Return its member id, and its generation if the library shows it."""
        result: dict[str, Any] = self.do("identity")["result"]
        return result

    def do(self, op: str, **values: Any) -> Event:
        """Send a command, and return the event with its outcome."""
        self._tags += 1
        tag = self._tags
        self.host.order(op=op, name=self.name, tag=tag, **values)
        done: list[Event] = []

        def outcome() -> bool:
            done[:] = [e for e in self.events(op) if e.get("tag") == tag]
            return bool(done)

        wait_until(outcome, [self.host], f"{self.name}: {op}")
        return done[0]

    def commit(self, offsets: dict[str, int]) -> Event:
        """Commit {"topic:partition": offset}. Return the event, which says if it was accepted."""
        return self.do("commit", offsets=offsets)

    def committed(self) -> dict[str, int]:
        """Return the committed offsets of the partitions that it owns."""
        event = self.do("committed")
        assert event["ok"], event
        result: dict[str, int] = event["result"]
        return result

    @property
    def ledger(self) -> Ledger:
        """Return the ledger of its load so far."""
        return self.host.ledgers.setdefault(self.name, Ledger())

    def load(self, rate: float, base: int = 0, *, resume: bool = False) -> None:
        """Commit all owned partitions ``rate`` times a second from now on. 0 ends the load.

        With ``resume`` it continues each partition from its committed offset (``ResumingLoad``).
        """
        self.host.order(op="load", name=self.name, rate=rate, base=base, resume=resume)

    def leave(self) -> None:
        """Close the consumer and wait for its end."""
        self.host.order(op="leave", name=self.name)
        wait_until(lambda: bool(self.events("ended")), [self.host], f"{self.name} ends")


def wait_until(ready: Callable[[], bool], hosts: list[Host], what: str) -> None:
    """Wait until a condition on the hosts' events is true."""
    give_up = time.monotonic() + WAIT_LIMIT_S
    while not ready():
        if time.monotonic() > give_up:
            raise AssertionError(f"never came: {what}\n" + "\n".join(h.complaint() for h in hosts))
        host = hosts[0]
        with host.changed:
            host.changed.wait(0.05)


def wait_shared(members: list[Member], topic: str, partitions: int) -> None:
    """Wait until every partition of the topic has one owner, and every member owns one."""

    def shared() -> bool:
        parts = [m.held for m in members]
        return (
            all(parts)
            and sum(len(p) for p in parts) == partitions
            and set().union(*parts) == {(topic, n) for n in range(partitions)}
        )

    hosts = list({id(m.host): m.host for m in members}.values())
    wait_until(
        shared, hosts, f"{[m.name for m in members]} share {partitions} partitions of {topic}"
    )


class Hosts:
    """The hosts of a test: one for each client library, and others that the test kills."""

    def __init__(self, bootstrap: str, diaries: Path | None = None) -> None:
        """Each host writes a diary into the directory ``diaries``."""
        self._bootstrap = bootstrap
        self._diaries = diaries
        self._shared: dict[str, Host] = {}
        self._all: list[Host] = []

    def shared(self, client: str) -> Host:
        if client not in self._shared:
            self._shared[client] = self.fresh(client)
        return self._shared[client]

    def fresh(self, client: str) -> Host:
        diary = self._diaries and self._diaries / f"{client}-{len(self._all)}.jsonl"
        host = Host(client, self._bootstrap, diary)
        self._all.append(host)
        return host

    def all(self) -> list[Host]:
        """Return every host that was started, also those that were killed."""
        return list(self._all)

    def end(self) -> None:
        for host in self._all:
            host.end()


def hosts_for(bootstrap: str, diaries: Path | None = None) -> Iterator[Hosts]:
    """Yield the hosts of a test, and end them. This is the body of a fixture."""
    hosts = Hosts(bootstrap, diaries)
    try:
        yield hosts
    finally:
        hosts.end()
