"""The scenarios that are tested with each client, and docs/use/compatibility.md, which lists them.

This file is long because it is the list of all scenarios.

A test run writes the document. Every test of a scenario reports its outcome and the version of its
client, and the end of the session writes them into the table. Rows of clients that did not run stay
unchanged. ``tests/house`` checks that the document has all scenarios.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.helpers.printed.printed_docs import ROOT

DOCUMENT = ROOT / "docs" / "use" / "compatibility.md"
WORKS, FAILS, UNKNOWN = "works", "fails", "not run"


class Scenario(NamedTuple):
    """One row of the document: what a test shows with a client."""

    name: str
    client: str
    shows: str


class Outcome(NamedTuple):
    """The outcome of a scenario, and the version of its client."""

    version: str
    outcome: str


class Section(NamedTuple):
    """The scenarios of one program, and where the versions of its clients are found."""

    title: str
    host: str
    """The key of ``ecosystem.TOOLCHAINS``, or "python" or "kcat"."""
    packages: Mapping[str, str]
    """The part of a scenario's name before "/" -> the name of its library among the versions."""
    scenarios: tuple[Scenario, ...]


def _rows(client: str, prefix: str, /, **shows: str) -> tuple[Scenario, ...]:
    return tuple(
        Scenario(f"{prefix}/{name.replace('_', '-')}", client, text) for name, text in shows.items()
    )


TOOL = Section(
    "Apache Kafka's command line",
    "java",
    {"tool": "kafka-clients"},
    _rows(
        "kafka-consumer-groups",
        "tool",
        list="--list names every group",
        list_state="--list --state, with and without a filter",
        list_type="--list --type, with and without a filter",
        describe_offsets="--describe --offsets: committed, end, lag, with members and without",
        describe_members="--describe --members; with --verbose the assignment",
        describe_state="--describe --state: coordinator, assignor, state, number of members",
        describe_absent="--describe of a group that does not exist",
        reset_to_offset="--reset-offsets --to-offset: dry run, export, execute; clamped to the end",
        reset_to_earliest="--reset-offsets --to-earliest",
        reset_to_latest="--reset-offsets --to-latest",
        reset_to_current="--reset-offsets --to-current",
        reset_shift_by="--reset-offsets --shift-by, forwards and back",
        reset_from_file="--reset-offsets --from-file, with the output of --export",
        reset_active="--reset-offsets of a group with members is refused",
        delete_offsets="--delete-offsets; refused while a member subscribes",
        delete="--delete; refused while the group has members",
    )
    + _rows(
        "kafka-consumer-groups, consumer group",
        "tool",
        consumer_group_list="--list by type and state; kafka-groups --list --consumer",
        consumer_group_describe_offsets="--describe, --describe --offsets, with members",
        consumer_group_describe_members="--describe --members --verbose: epochs, both assignments",
        consumer_group_describe_state="--describe --state --verbose: assignor, epochs",
        consumer_group_reset="--reset-offsets: refused with members; dry run, execute",
        consumer_group_delete="--delete, --delete-offsets; refused with members",
    )
    + _rows(
        "kafka-configs, consumer group",
        "tool",
        consumer_group_configs="--alter and --describe; a value beyond the bounds is refused",
    )
    + _rows("kafka-groups", "tool", groups="--list, all and by type")
    + _rows("kafka-get-offsets", "tool", get_offsets="--time latest and earliest")
    + _rows("kafka-topics", "tool", topics="--create, --describe, --alter, --list, --delete")
    + _rows("kafka-configs", "tool", configs="--alter and --describe of a group"),
)

JAVA = Section(
    "Java",
    "java",
    dict.fromkeys(("java-consumer", "java-producer", "java-admin"), "kafka-clients"),
    _rows(
        "KafkaConsumer, classic",
        "java-consumer",
        range="range: alone, share, leave, resume at the commit",
        cooperative_sticky="cooperative-sticky: only partitions that move are revoked",
        static_member="a static member restarts: same partitions, no rebalance",
        fenced_instance="a second process with the same instance id fences the first",
        pattern="subscribe by pattern, also to a topic that is created later",
        commits="commitSync, commitAsync, committed, metadata, a rewind",
        evicted="an evicted member gets an error for its commit, and joins again",
        offsets_of_topics="beginningOffsets, endOffsets, position, poll of an empty topic",
        monotonic_commit="`commit.monotonic`: a rewind is a failed commit; the member stays",
    )
    + _rows(
        "KafkaProducer",
        "java-producer",
        refused="a record is refused with POLICY_VIOLATION (static mode)",
    )
    + _rows(
        "Admin",
        "java-admin",
        list_groups="listGroups, by state and by type",
        describe_groups="describeConsumerGroups, describeClassicGroups",
        offsets="alterConsumerGroupOffsets, listConsumerGroupOffsets of many groups",
        delete_offsets="deleteConsumerGroupOffsets, refused while subscribed",
        delete_groups="deleteConsumerGroups, refused while the group has members",
        remove_members="removeMembersFromConsumerGroup by instance id",
        group_configs="incrementalAlterConfigs, describeConfigs, listConfigResources of a group",
        read_only_configs="describeConfigs of the broker and of a topic",
        topics="create, extend, describe, list offsets, delete; offsets are deleted with the topic",
        cluster="describeCluster, describeFeatures",
    ),
)

_SARAMA = "IBM/sarama"
_AT = {"sarama-0.8.2": "V0_8_2_0", "sarama-0.11": "V0_11_0_0", "sarama-2.4": "V2_4_0_0"}

GO = Section(
    "Go",
    "go",
    {
        "kafka-go": "github.com/segmentio/kafka-go",
        "shopify-1.8": "github.com/Shopify/sarama",
        **dict.fromkeys((*_AT, "sarama-newest"), "github.com/IBM/sarama"),
        "franz-go": "github.com/twmb/franz-go",
        "kadm": "github.com/twmb/franz-go/pkg/kadm",
    },
    _rows(
        "segmentio/kafka-go",
        "kafka-go",
        life_cycle="ConsumerGroup: generation, commit, leave, resume at the commit",
        heartbeats="ConsumerGroup: a member lives longer than its session",
        partition_watcher="ConsumerGroup: new partitions end the generation",
        range="ConsumerGroup: two members, range balancer",
        round_robin="ConsumerGroup: two members, round-robin balancer",
        leave="ConsumerGroup: after a leave, the other member gets the partitions at once",
        stale_commit="OffsetCommit of an old generation is refused",
        reader="Reader with a group: waits, commits, leaves",
        client="Client: OffsetCommit, OffsetFetch, groups, OffsetDelete, DeleteGroups",
        start_offset="ConsumerGroup: StartOffset if nothing was committed",
        two_topics="ConsumerGroup: two topics in one generation",
        absent_topic="ConsumerGroup: nothing is assigned while one topic is missing",
        auto_create="ConsumerGroup: a topic that is created when a client asks for it",
        first_join="ConsumerGroup: two members within the initial delay share generation 1",
        rebalance_timeout="ConsumerGroup: a member that rejoins too late joins as a new one",
        generation_ended="ConsumerGroup: ErrGenerationEnded, ErrGroupClosed, a function returns",
        retention_time="ConsumerGroup: RetentionTime is obeyed",
        user_data="ConsumerGroup: a balancer's user data reaches the leader",
        errors="errors 22, 23, 25 and 26 have the client's own names",
        store_away="errors 16 and 14 while the store fails, and no error after it",
        group_limit="error 15 at the limit on the number of groups",
        authorization_errors="errors 29 to 31 of a broker with ACLs have the client's own names",
    )
    + _rows(
        "Shopify/sarama",
        "shopify-1.8",
        offset_manager="OffsetManager: mark, commit, close, resume",
        group_requests="a member by single requests: join to leave, describe, list, commit 0 to 2",
        group_errors="errors 12 and 22 to 27 have the client's own names",
        closed_versions="ListOffsets 0, Fetch 0, Produce 0 close the connection; groups continue",
        store_away="errors 16 and 14 while the store fails, and no error after it",
        group_limit="error 15 at the limit on the number of groups",
        authorization_errors="errors 29 to 31 of a broker with ACLs have the client's own names",
        large_group="error 28 at the limit on the size of a group",
        timestamp="the timestamp of OffsetCommit 1 is ignored",
    )
    + _rows(
        f"{_SARAMA} at V0_8_2_0",
        "sarama-0.8.2",
        offset_manager="OffsetManager: OffsetCommit v1, on which Kafka 4.3 closes the connection",
    )
    + _rows(
        f"{_SARAMA} at V0_11_0_0",
        "sarama-0.11",
        consumer_group="ConsumerGroup, range: share, commit, leave, resume",
    )
    + _rows(
        f"{_SARAMA} at V2_4_0_0",
        "sarama-2.4",
        consumer_group="ConsumerGroup, round-robin: share, commit, leave, resume",
    )
    + _rows(
        f"{_SARAMA} at its newest",
        "sarama-newest",
        consumer_group="ConsumerGroup, sticky: share, commit, leave, resume",
        cooperative_sticky="ConsumerGroup, cooperative-sticky: share, commit, leave, resume",
        static_member="a static member restarts in its generation; ClusterAdmin removes it",
        offset_manager="OffsetManager without a group of members",
        cluster_admin="ClusterAdmin: topics, groups, offsets, deletions",
        group_configs="ClusterAdmin: configs of a group",
        consumer="Consumer: the ends of a partition, high watermark, out of range, async close",
        producer="SyncProducer: a record is refused with POLICY_VIOLATION (static mode)",
    )
    + _rows(
        "franz-go kgo",
        "franz-go",
        life_cycle="range: alone, share, commit, leave, resume",
        cooperative_sticky="cooperative-sticky: only partitions that move are revoked",
        static_member="a static member restarts in its generation",
        regex="topics by regular expression, also one that is created later",
        monotonic_commit="`commit.monotonic`: a rewind is a failed commit; the member stays",
    )
    + _rows(
        "franz-go kadm",
        "kadm",
        groups="list by state, describe, delete",
        offsets="commit, fetch of many groups, lag, delete",
        leave="an administrator removes a static member",
        topics="create, extend, list offsets, delete; offsets are deleted with the topic",
    ),
)

NODE = Section(
    "JavaScript",
    "node",
    {"kafkajs": "kafkajs", "kafkajs-admin": "kafkajs"},
    _rows(
        "kafkajs consumer",
        "kafkajs",
        life_cycle="alone, share, commit, leave, resume",
        heartbeats="a member lives longer than its session",
        own_assigner="an assigner written by the user, with its user data",
        pattern="topics by regular expression",
    )
    + _rows(
        "kafkajs admin",
        "kafkajs-admin",
        groups="list, describe, delete; refused while the group has members",
        offsets="setOffsets, fetchOffsets, resetOffsets",
        topics="create, extend, describeCluster, delete",
    ),
)

KCAT = Section(
    "kcat",
    "kcat",
    {"kcat": "kcat"},
    _rows(
        "kcat",
        "kcat",
        metadata="-L lists broker and topics",
        group="-G joins, is assigned, reaches the end, leaves",
        offsets="-Q asks for earliest and latest offsets",
    ),
)

PYTHON_CLIENTS: Mapping[str, str] = {
    "aiokafka": "aiokafka",
    "librdkafka": "confluent-kafka",
    "kafka-python": "kafka-python",
}
"""Name of a client in ``tests/helpers/clients/members.py`` -> its Python distribution."""

_COOPERATIVE = ("librdkafka", "kafka-python")
_PYTHON_LIVES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("a_member_alone_gets_every_partition", (*PYTHON_CLIENTS,), "join alone"),
    ("three_members_share_and_a_leave_hands_over", (*PYTHON_CLIENTS,), "join, share, leave"),
    ("a_killed_members_partitions_go_to_the_others", (*PYTHON_CLIENTS,), "kill -9 of a member"),
    (
        "cooperative_members_keep_what_they_need_not_give_up",
        _COOPERATIVE,
        "cooperative-sticky: only partitions that move are revoked",
    ),
    (
        "a_static_member_comes_back_without_a_rebalance",
        (*PYTHON_CLIENTS,),
        "a static member restarts: no rebalance",
    ),
    (
        "a_commit_of_a_stale_generation_is_refused",
        (*PYTHON_CLIENTS,),
        "a commit of an old generation is refused",
    ),
    (
        "a_rewind_is_a_failed_commit_and_the_member_stays",
        (*PYTHON_CLIENTS,),
        "`commit.monotonic`: a rewind is a failed commit; the member stays",
    ),
)

_ALL_NEW = ("librdkafka", "java", "franz-go")
_NEW_LIVES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "members_come_and_go_and_every_partition_has_one_of_them",
        _ALL_NEW,
        "one to four members and back",
    ),
    ("a_killed_members_partitions_go_to_the_others", _ALL_NEW, "kill -9 of a member"),
    (
        "a_static_member_that_comes_back_in_time_has_what_it_had",
        ("librdkafka", "java"),
        "a static member restarts: the others notice nothing",
    ),
    ("what_a_member_commits_the_next_one_resumes_from", _ALL_NEW, "commit, leave, resume"),
    (
        "a_pattern_finds_topics_that_appear",
        _ALL_NEW,
        "topics by pattern, also one that is created later",
    ),
    (
        "members_go_on_after_kill_9_in_the_midst_of_a_reconciliation",
        _ALL_NEW,
        "kill -9 of the daemon while partitions move",
    ),
)


def _new_lives(library: str, client: str) -> tuple[Scenario, ...]:
    """Return the scenarios of consumer groups with this library."""
    return tuple(
        Scenario(new_protocol(library, name), f"{client}, consumer protocol", shows)
        for name, libraries, shows in _NEW_LIVES
        if library in libraries
    )


def new_protocol(library: str, test: str) -> str:
    """Return the name of the scenario of a test of consumer groups with this library."""
    return f"{library}-kip848/{test.replace('_', '-')}"


NEW_PROTOCOL = Section(
    "Consumer groups (KIP-848) in Java and Go",
    "members",
    {"java-kip848": "kafka-clients", "franz-go-kip848": "github.com/twmb/franz-go"},
    _new_lives("java", "KafkaConsumer") + _new_lives("franz-go", "franz-go kgo"),
)

PYTHON = Section(
    "Python",
    "python",
    {**PYTHON_CLIENTS, "librdkafka-kip848": "confluent-kafka"},
    tuple(
        Scenario(f"{client}/{name.replace('_', '-')}", PYTHON_CLIENTS[client], shows)
        for client in PYTHON_CLIENTS
        for name, clients, shows in _PYTHON_LIVES
        if client in clients
    )
    + _new_lives("librdkafka", "confluent-kafka"),
)

SECTIONS = (TOOL, JAVA, GO, NEW_PROTOCOL, NODE, KCAT, PYTHON)

OURS_ALONE = frozenset(
    {
        "sarama-0.8.2/offset-manager",
        "sarama-newest/producer",
        "shopify-1.8/offset-manager",
        "shopify-1.8/group-requests",
        "shopify-1.8/closed-versions",
        "java-producer/refused",
        "java-consumer/monotonic-commit",
        "franz-go/monotonic-commit",
    }
)
"""The scenarios that must fail against a real Apache Kafka."""

OWN_SERVER = frozenset(
    {
        "kafka-go/auto-create",
        "kafka-go/first-join",
        "kafka-go/group-limit",
        "kafka-go/retention-time",
        "kafka-go/store-away",
        "shopify-1.8/group-limit",
        "shopify-1.8/large-group",
        "shopify-1.8/store-away",
        "shopify-1.8/timestamp",
    }
)
"""The scenarios that need a server with special settings, and not the shared one."""

_HEAD = """\
# Compatibility

Which clients were tested with the running daemon, in which versions, and what each test shows. For
people who want to know whether their client works.

Each line is a scenario: a test that uses some features of a client. The tests write this page,
after a run of all scenarios. `make test` runs the clients of Python, `make test-clients` those of
other languages and Kafka's command line. confluent-kafka contains librdkafka, which clients of many
other languages also use.

Clients get no messages in these tests, because groupkeeper has none. If a client sends Fetch 0-3,
ListOffsets 0 or Produce 0-2, its connection is closed, as by Kafka 4.3.

If a static member of franz-go 1.22.2 leaves a consumer group, it does not name its instance id. So
groupkeeper refuses the request, as Kafka does, and the partitions of the member wait until its
session ends.
"""
_LINE = re.compile(
    r"^\| [^|]+ \| (?P<version>[^|]+) \| `(?P<name>[^`]+)` \| .* \| (?P<outcome>[^|]+) \|$"
)


def scenarios() -> list[Scenario]:
    """Return all scenarios, in the order of the document."""
    return [scenario for section in SECTIONS for scenario in section.scenarios]


def of_host(host: str) -> list[Scenario]:
    """Return the scenarios that the program ``host`` of ``tests/conformance`` can run. Those of
    Kafka's command line are separate tests.
    """
    return [s for section in (JAVA, GO, NODE) if section.host == host for s in section.scenarios]


def pinned() -> dict[str, str]:
    """Return library -> the version that the files of its language pin."""
    programs = ROOT / "tests" / "conformance"
    pom = (programs / "java" / "pom.xml").read_text()
    go = re.findall(r"^\t(\S+) v(\S+)$", (programs / "go" / "go.mod").read_text(), re.MULTILINE)
    node = json.loads((programs / "node" / "package.json").read_text())["dependencies"]
    kafka = dict(re.findall(r"<artifactId>(.*?)</artifactId>\s*<version>(.*?)</version>", pom))
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    python = dict(line.split("==") for line in constraints if "==" in line)
    return {**kafka, **dict(go), **node, **python}


def package(name: str) -> str:
    """Return the name of a scenario's library among the versions of its program."""
    prefix = name.partition("/")[0]
    return next(s.packages[prefix] for s in SECTIONS if prefix in s.packages)


def is_pinned(name: str, version: str) -> bool:
    """Return True if a scenario ran with the version that the document is about.

    ``make test-oldest`` has other versions. The version of kcat is not pinned: it is Debian's.
    """
    return name.startswith("kcat/") or pinned()[package(name)] == version


def parse(text: str) -> dict[str, Outcome]:
    """Return name of a scenario -> its outcome, from the text of the document."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {m["name"]: Outcome(m["version"], m["outcome"]) for m in found if m}


def render(outcomes: Mapping[str, Outcome]) -> str:
    """Return the text of the document with these outcomes."""
    parts = [_HEAD]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        parts.append(_table(section.scenarios, outcomes))
    return "\n".join(parts)


def _table(rows: Iterable[Scenario], outcomes: Mapping[str, Outcome]) -> str:
    lines = [
        "| client | version | scenario | what it shows | outcome |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        version, outcome = outcomes.get(row.name, Outcome("-", UNKNOWN))
        lines.append(f"| {row.client} | {version} | `{row.name}` | {row.shows} | {outcome} |")
    return "\n".join(lines) + "\n"
