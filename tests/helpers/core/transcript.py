"""Transcripts of a shard: one command, and below it everything that it caused.

A file begins with a paragraph on what it proves. Commands follow, separated by blank lines:

    > shard delay=3s size=2                 limits of the shard; first, or not at all
    > join alice protocols=range,sticky     a setting of a client also applies to its later joins
    > restart alice                         its process starts again and knows no member id
    > sync alice alice=orders/0,orders/1 bob=orders/2
    > heartbeat alice alice:alice-1       with the id that it has, or with another
    > leave alice reason=...
    > commit alice orders/0=10              or ``commit nobody``
    > fetch g orders/0
    > list, describe g
    > advance 10s
    > reload                                the process is killed and comes back
    > topics orders=12

The output has one line for each reply, record and event, in the order of the step. ``+`` and a time
show how long after the command it came. The last line has the time until the next deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import (
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    Record,
)
from groupkeeper.coordinator.core.requests.admin import DescribeGroupResult, ListGroupsResult
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinGroupResult,
    JoinProtocol,
    LeaveGroupResult,
    LeavingMember,
    SyncGroupResult,
)
from groupkeeper.coordinator.core.requests.offsets import (
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetchResult,
)
from groupkeeper.coordinator.core.step import Reply, Step
from tests.helpers.core.shard_driver import Call, MemberStub, ShardDriver

SHARD_KEYS = {"delay": "initial_rebalance_delay_ms", "size": "group_max_size"}
HIDDEN_FIELDS = {"group", "generation", "api", "client_id", "client_host", "principal"}


def milliseconds(text: str) -> int:
    """Return the milliseconds of a text such as ``3s``, ``250ms`` or ``10min``."""
    for unit, factor in (("ms", 1), ("min", 60_000), ("s", 1_000)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    raise ValueError(f"{text}: a time is written 250ms, 3s or 10min")


def run(text: str) -> str:
    """Run the commands of a transcript. Return the transcript with their present output."""
    blocks = text.strip("\n").split("\n\n")
    transcript = Transcript()
    done = []
    for block in blocks:
        command = block.split("\n", 1)[0]
        if command.startswith("> "):
            done.append("\n".join([command, *transcript.run(command[2:])]))
        else:
            done.append(block)
    transcript.driver.check_replay()
    return "\n\n".join(done) + "\n"


class RecordingDriver(ShardDriver):
    """Passes every step to ``note``, with the time of the step."""

    def __init__(self, note: Callable[[Step, int], None], **limits: Any) -> None:
        self._note = note
        super().__init__(**limits)

    def _take(self, step: Step) -> Step:
        self._note(step, self.now.monotonic_ms)
        return super()._take(step)


class Transcript:
    """The clients of one file, and their shard."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.started_ms = 0
        self.clients: dict[str, MemberStub] = {}
        self.names: dict[Any, str] = {}
        """Member id -> the name of its client."""
        self.driver = RecordingDriver(self.note, initial_rebalance_delay_ms=3_000)

    # --- Commands ---------------------------------------------------------------------------------

    def run(self, command: str) -> list[str]:
        """Run one command, and return its lines of output."""
        self.lines = []
        self.started_ms = self.driver.now.monotonic_ms
        verb, *words = command.split()
        getattr(self, f"do_{verb}")(*words)
        due = self.driver.shard.next_deadline()
        if due is not None and verb not in ("list", "describe", "fetch"):
            self.lines.append(f"  wakes in {due - self.driver.now.monotonic_ms} ms")
        return self.lines

    def do_shard(self, *words: str) -> None:
        limits: dict[str, Any] = {}
        for key, value in (word.split("=") for word in words):
            limits[SHARD_KEYS[key]] = int(value) if key == "size" else milliseconds(value)
        self.driver = RecordingDriver(self.note, **limits)

    def client(self, name: str) -> MemberStub:
        if name not in self.clients:
            self.clients[name] = MemberStub(
                self.driver,
                fields={
                    "client": Client(name, f"/{name}.example"),
                    "requires_known_member_id": True,
                },
            )
        return self.clients[name]

    def do_join(self, name: str, *words: str) -> None:
        member = self.client(name)
        fields = member.fields
        settings = dict(word.split("=", 1) for word in words)
        metadata = settings.pop("metadata", None)
        for key, value in settings.items():
            match key:
                case "group":
                    member.group_id = value
                case "static":
                    member.instance_id = value
                case "version":
                    fields["requires_known_member_id"] = int(value) >= 4
                    fields["supports_skip_assignment"] = int(value) >= 9
                case "protocols":
                    fields["protocols"] = tuple(
                        JoinProtocol(n, name.encode()) for n in value.split(",")
                    )
                case "type":
                    fields["protocol_type"] = value
                case "session" | "rebalance":
                    fields[f"{key}_timeout_ms"] = milliseconds(value)
                case _:
                    raise ValueError(f"a join has no {key}")
        if metadata is not None or "protocols" not in fields:
            offered = fields.get("protocols", (JoinProtocol("range", b""),))
            text = (metadata or name).encode()
            fields["protocols"] = tuple(JoinProtocol(p.name, text) for p in offered)
        if not member.member_id:
            fields["new_member_id"] = self.driver.mint(name)
            self.names[fields["new_member_id"]] = name
        member.join()

    def do_restart(self, name: str) -> None:
        self.client(name).member_id = ""

    def do_sync(self, name: str, *words: str) -> None:
        assignments = {}
        for word in words:
            who, partitions = word.split("=")
            assignments[self.client(who).member_id] = partitions.encode()
        self.client(name).sync(assignments)

    def do_heartbeat(self, *names: str) -> None:
        for word in names:
            name, _, former_id = word.partition(":")
            member = self.client(name)
            member_id = former_id or member.member_id
            self.driver.heartbeat(
                member.group_id, member_id, member.generation_id, member.instance_id
            )

    def do_leave(self, name: str, *words: str) -> None:
        settings = dict(word.split("=", 1) for word in words)
        if name.startswith("static:"):
            member = LeavingMember("", name.removeprefix("static:"), settings.get("reason"))
            self.driver.leave("g", member)
        else:
            client = self.client(name)
            # A client whose join is parked does not know its id yet. An administrator knows it.
            member_id = client.member_id or client.fields["new_member_id"]
            leaving = LeavingMember(member_id, client.instance_id, settings.get("reason"))
            self.driver.leave(client.group_id, leaving)

    def do_commit(self, name: str, *words: str) -> None:
        topics: dict[str, dict[int, int]] = {}
        fields: dict[str, Any] = {}
        group_id = "g"
        for key, value in (word.split("=") for word in words):
            topic, slash, partition = key.partition("/")
            if slash:
                topics.setdefault(topic, {})[int(partition)] = int(value)
            elif key == "generation":
                fields["generation_id"] = int(value)
            elif key == "retention":
                fields["retention_ms"] = milliseconds(value)
            else:
                assert key == "group", f"a commit has no {key}"
                group_id = value
        if name == "nobody":
            self.driver.commit(group_id, topics, **fields)
        else:
            self.client(name).commit(topics, **fields)

    def do_fetch(self, group_id: str, *words: str) -> None:
        topics: dict[str, list[int]] = {}
        for word in words:
            topic, partition = word.split("/")
            topics.setdefault(topic, []).append(int(partition))
        self.driver.fetch(group_id, topics or None)

    def do_list(self) -> None:
        self.driver.list_groups()

    def do_describe(self, group_id: str) -> None:
        self.driver.describe(group_id)

    def do_advance(self, time: str) -> None:
        self.driver.advance(milliseconds(time))

    def do_reload(self, *words: str) -> None:
        limits = {SHARD_KEYS[k]: int(v) for k, v in (word.split("=") for word in words)}
        self.driver.reload(**limits)

    def do_topics(self, *words: str) -> None:
        topics = []
        for at, word in enumerate(words):
            name, partitions = word.split("=")
            topics.append(TopicInfo(name, f"{at:022}", int(partitions)))
        self.driver.change_topics(*topics)

    # --- Output -----------------------------------------------------------------------------------

    def note(self, step: Step, at_ms: int) -> None:
        """Add the output lines of a step."""
        passed = at_ms - self.started_ms
        prefix = f"  +{passed}ms " if passed and self.started_ms else "  "
        for reply in step.replies:
            self.lines.append(f"{prefix}{self.reply(reply)}")
        for record in step.records:
            self.lines.append(f"{prefix}record {self.record(record)}")
        for event in step.events:
            self.lines.append(f"{prefix}event {self.event(event)}")

    def reply(self, reply: Reply) -> str:
        """Return the line of a reply. The client takes over its member id and generation."""
        call = reply.ticket
        assert isinstance(call, Call)
        request = call.request
        who = self.sender(call)
        api = type(request).__name__
        early = "" if reply.waits else " (does not wait)"
        if isinstance(request, Heartbeat):
            assert not isinstance(reply.result, tuple)
        return f"{api}{who} -> {self.result(call, reply.result)}{early}"

    def sender(self, call: Call) -> str:
        client = getattr(call.request, "client", None)
        member_id = getattr(call.request, "member_id", "")
        if member_id in self.names:
            return f" {self.names[member_id]}"
        if client is not None and client.client_id in self.clients:
            return f" {client.client_id}"
        return ""

    def result(self, call: Call, result: Result) -> str:
        match result:
            case JoinGroupResult():
                return self.join_result(call, result)
            case SyncGroupResult():
                text = f"{result.error.name} {result.assignment.decode() or '(nothing)'}"
                return text if result.error == 0 else result.error.name
            case LeaveGroupResult():
                each = [m.error.name for m in result.members]
                return " ".join([result.error.name, *each])
            case OffsetCommitResult():
                assert isinstance(call.request, OffsetCommit)
                errors = {
                    (name or tid, n): error.name
                    for name, tid, parts in result.topics or []
                    for n, error in parts
                }
                if result.topics is None:
                    return result.error.name
                return " ".join(f"{t}/{n}:{e}" for (t, n), e in errors.items())
            case OffsetFetchResult():
                found = [
                    f"{name or tid}/{part[0]}={part[1]}"
                    for name, tid, parts in result.topics
                    for part in parts
                ]
                return " ".join([result.error.name, *found])
            case ListGroupsResult():
                groups = [f"{g.group_id}:{g.group_state}" for g in result.groups]
                return " ".join([result.error.name, *groups])
            case DescribeGroupResult():
                members = [f"{m.member_id}[{m.member_assignment.decode()}]" for m in result.members]
                name = result.protocol_name or "-"
                return " ".join([result.error.name, str(result.state), name, *members])
            case _:
                return getattr(result, "name", repr(result))

    def join_result(self, call: Call, result: JoinGroupResult) -> str:
        name = self.sender(call).strip()
        member = self.clients.get(name)
        is_latest = member is not None and result.member_id
        if is_latest and result.error in (0, 79):
            assert member is not None
            member.member_id = result.member_id
            member.generation_id = result.generation_id
        if result.error != 0:
            return f"{result.error.name} member={result.member_id or '(none)'}"
        words = [
            result.error.name,
            f"member={result.member_id}",
            f"generation={result.generation_id}",
            f"protocol={result.protocol_name}",
            f"leader={result.leader}",
        ]
        if result.skip_assignment:
            words.append("skip-assignment")
        if result.members:
            shown = ",".join(f"{m.member_id}({m.metadata.decode()})" for m in result.members)
            words.append(f"members={shown}")
        return " ".join(words)

    def record(self, record: Record) -> str:
        match record:
            case GroupRecord():
                members = [f"{m.member_id}[{m.assignment.decode()}]" for m in record.members]
                return " ".join(
                    [
                        f"group {record.group_id}",
                        f"generation={record.generation_id}",
                        f"protocol={record.protocol_name or '-'}",
                        f"leader={record.leader_id or '-'}",
                        *members,
                    ]
                )
            case OffsetsCommitted():
                parts = [
                    f"{t.topic}/{partition}={offset}(was {previous})"
                    for t in record.topics
                    for partition, offset, previous, _, _ in t.partitions
                ]
                by = record.member_id or "nobody"
                return f"commit {record.group_id} by {by}: {' '.join(parts)}"
            case OffsetsRemoved():
                parts = [f"{t}/{n}" for t, n in record.partitions]
                return f"offsets removed {record.group_id}: {' '.join(parts)}"
            case OffsetsAdopted():
                parts = [f"{t.topic}/{n}" for t in record.topics for n, _ in t.partitions]
                return f"offsets adopted {record.group_id}: {' '.join(parts)}"
            case GroupRemoved():
                return f"group removed {record.group_id}"
            case PartitionEnd():
                return f"end {record.topic_id}/{record.partition}={record.end_offset}"
            case _:
                return repr(record)

    def event(self, event: Event) -> str:
        fields = msgspec.to_builtins(event)
        words = [fields.pop("kind"), f"group={event.group_id}"]
        if event.generation_id >= 0:
            words.append(f"generation={event.generation_id}")
        for key, value in fields.items():
            if key not in HIDDEN_FIELDS and value not in (None, "", -1):
                words.append(f"{key}={value}")
        return " ".join(words)
