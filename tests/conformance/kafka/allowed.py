"""The decisions of docs/differences.md: what may differ from Apache Kafka, and where.

The page's table is printed from here (``python -m tests.helpers.printed_docs``), and this is the
comparison's allow-list: a difference that no decision covers fails the target. A decision without
rules concerns what no comparison can reach, such as a store that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.kafka.comparison import PARKED, Difference

MOST = 15
"""More decisions than this are too many to call the daemon Kafka's equal."""


@dataclass(frozen=True)
class Rule:
    """Where a difference may be found, and what it may be."""

    apis: frozenset[str]
    fields: str
    """A regular expression over the whole path."""
    holds: Callable[[Any, Any], bool]
    """Whether this is it, given Kafka's value and ours."""
    cases: str = ""
    """A regular expression over the names of the cases that may show it; any, where empty."""
    versions: range = range(100)
    given_up_by: str = ""
    """The API whose request must have left the answered one to wait in vain; where empty, none."""

    def covers(self, found: Difference) -> bool:
        """Say whether it allows this difference."""
        return (
            found.api in self.apis
            and found.version in self.versions
            and re.fullmatch(self.fields, found.field) is not None
            and (not self.cases or re.match(self.cases, found.case) is not None)
            and (not self.given_up_by or self.given_up_by == found.given_up_by)
            and self.holds(found.kafka, found.ours)
        )


@dataclass(frozen=True)
class Decision:
    """One way in which we differ on purpose: one reason, wherever it shows."""

    title: str
    apis: str
    versions: str
    fields: str
    why: str
    rules: tuple[Rule, ...] = ()


def _rule(apis: str, fields: str, holds: Callable[[Any, Any], bool], **more: Any) -> Rule:
    return Rule(frozenset(apis.split()), fields, holds, **more)


def _answered(*codes: int) -> Callable[[Any, Any], bool]:
    """Kafka lets wait what we answer with one of these."""
    return lambda kafka, ours: kafka == PARKED and ours.get("error_code") in codes


def _anything(_kafka: Any, _ours: Any) -> bool:
    return True


def _is(kafka: Any, ours: Any) -> Callable[[Any, Any], bool]:
    return lambda theirs, mine: (theirs, mine) == (kafka, ours)


DECISIONS: tuple[Decision, ...] = (
    Decision(
        "Nobody waits in vain",
        "JoinGroup, SyncGroup",
        "all",
        "the answer",
        "Where Kafka never answers, or only when a timeout ends, we answer at once: the older of "
        "two joins or syncs of one member (REBALANCE_IN_PROGRESS), a parked sync of a member that "
        "is removed (UNKNOWN_MEMBER_ID), a join that names a protocol twice (the first counts), "
        "the members that wait for one that was sent away because the group is full.",
        (
            _rule("join_group", "", _answered(27), given_up_by="join_group"),
            _rule("sync_group", "", _answered(27), given_up_by="sync_group"),
            _rule("sync_group", "", _answered(25), given_up_by="leave_group"),
            _rule("join_group", "", _answered(0), cases="the_slowest_of_too_many_is_sent_away"),
            _rule("join_group", ".*", _anything, cases="a_protocol_named_twice"),
        ),
    ),
    Decision(
        "No records are kept",
        "Produce, Fetch, ListOffsets, Metadata, CreateTopics, DescribeConfigs, "
        "IncrementalAlterConfigs",
        "all",
        "what speaks of records: errors of Produce and Fetch, offsets, leader epochs and replicas "
        "of partitions, configs of topics",
        "Offsets and groups without records are what this is for. Values that only a log could "
        "have would be made up.",
        (
            _rule("create_topics", "topics.configs", lambda _, ours: ours in ([], None)),
            _rule(
                "describe_configs incremental_alter_configs",
                ".*",
                _anything,
                cases="configs_of_a_topic",
            ),
            _rule(
                "list_offsets",
                r"topics.partitions.(error_code|offset|leader_epoch)",
                _anything,
                cases="ends_of_partitions",
            ),
        ),
    ),
    Decision(
        "Settings stand in a file",
        "DescribeConfigs, IncrementalAlterConfigs, ListConfigResources",
        "all",
        "everything of the resource types BROKER, BROKER_LOGGER and CLIENT_METRICS",
        "What a broker keeps in its cluster is our configuration file, and is described from it, "
        "read-only; there are no loggers and no client metrics. To accept and forget would be "
        "worse than to refuse.",
        (
            _rule(
                "describe_configs incremental_alter_configs",
                ".*",
                _anything,
                cases="configs_of_the_broker",
            ),
        ),
    ),
    Decision(
        "Four configs of groups are our own",
        "DescribeConfigs, IncrementalAlterConfigs",
        "all",
        "the four keys below",
        "Classic groups need them and Kafka has nothing like them; each is off by default.",
        (
            _rule(
                "describe_configs incremental_alter_configs",
                ".*",
                _anything,
                cases="configs_of_our_own",
            ),
        ),
    ),
    Decision(
        "What is not served is not listed",
        "ApiVersions, FindCoordinator",
        "all",
        "api_keys, features; the coordinator of transactions and share groups",
        "Consumer, share and streams groups, transactions and some APIs of admin tools are not "
        "served yet, or not at all. Clients that do not see them fall back or say so in their own "
        "words; half of them would be worse.",
        (
            _rule(
                "api_versions",
                "api_keys|supported_features|finalized_features|finalized_features_epoch",
                _anything,
                cases="served_versions",
            ),
        ),
    ),
    Decision(
        "Old versions that are sent unasked are served",
        "OffsetCommit, OffsetFetch",
        "OffsetCommit 0-1, OffsetFetch 0",
        "the answer",
        "sarama and others send them without asking; Kafka 4 closes the connection. They are not "
        "advertised.",
        (
            _rule("offset_commit", "connection", _is("closed", "answered"), versions=range(2)),
            _rule("offset_fetch", "connection", _is("closed", "answered"), versions=range(1)),
        ),
    ),
    Decision(
        "One way back where storage fails",
        "all that write, and SyncGroup and OffsetFetch while a shard loads",
        "all",
        "error codes: see below",
        "A failed append drops the shard and loads it again, and nobody is evicted by that. Kafka "
        "undoes single changes, and answers a sync with a code that is fatal to its own client.",
    ),
    Decision(
        "A slow store or a slow process evicts nobody",
        "Heartbeat, and all that wait for a timer",
        "all",
        "when the answer comes",
        "NONE and REBALANCE_IN_PROGRESS promise nothing that a crash takes back, so they do not "
        "wait for earlier writes. The clock of a process that was stopped goes on by a second at "
        "the most before what waits in the sockets is read.",
    ),
    Decision(
        "Everything has a limit",
        "all",
        "all",
        "the answer to what is too large",
        "One request may hold the loop for 100 ms at the most, memory is finite, and a store "
        "takes only so much in one step. The limits are below, with what meets them.",
    ),
    Decision(
        "Generations start again at 1",
        "JoinGroup",
        "all",
        "generation_id after 2147483647",
        "In Kafka it becomes negative, which means no generation at all. A group must not end "
        "there.",
    ),
    Decision(
        "A topic that Metadata creates is shown by it",
        "Metadata",
        "all, where auto_create_topics is set",
        "topics.error_code, topics.partitions",
        "Kafka answers UNKNOWN_TOPIC_OR_PARTITION first, since its controller is elsewhere, and "
        "the client asks again.",
    ),
    Decision(
        "Slips of Kafka's admin side",
        "IncrementalAlterConfigs",
        "all",
        "error_code",
        "An unknown operation is the client's mistake, INVALID_REQUEST and not "
        "UNKNOWN_SERVER_ERROR. A value with spaces around it is trimmed; Kafka takes it, fails to "
        "apply it, and no longer lists the group.",
        (
            _rule(
                "incremental_alter_configs",
                "responses.error_code|responses.error_message",
                _anything,
                cases="slips_of_altering_configs",
            ),
        ),
    ),
)
"""In the order of docs/differences.md, which numbers them."""


def table() -> str:
    """The decisions as a table of the page."""
    head = "| # | decision | APIs | versions | fields | why |"
    rows = [
        f"| {n} | {d.title} | {d.apis} | {d.versions} | {d.fields} | {d.why} |"
        for n, d in enumerate(DECISIONS, 1)
    ]
    return "\n".join([head, "| --- " * 6 + "|", *rows])


def decision_of(found: Difference) -> int | None:
    """The number of the decision that allows a difference; None where none does."""
    for number, decision in enumerate(DECISIONS, 1):
        if any(rule.covers(found) for rule in decision.rules):
            return number
    return None
