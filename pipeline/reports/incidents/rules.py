"""The rules that define what counts as an incident, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from groupkeeper.pipeline.reports.incidents.findings import (
    Facts,
    above_slo,
    refused,
    rewound,
    silent,
    skipped,
    stalled,
    storms,
)

CRITICAL: Final = "critical"
WARNING: Final = "warning"
SEVERITIES: Final = (CRITICAL, WARNING)
"""The severities. The most severe is first."""


@dataclass(frozen=True)
class Rule:
    """A kind of incident: how to find its incidents, and how to describe them."""

    name: str
    severity: str
    title: str
    find: Callable[[Facts], DataFrame]
    unit: str
    """The unit of the amount that an incident has, for example messages."""
    view: str
    """The SQL view with the rows that show an incident."""
    at: str
    """The column of ``view`` with the time (ms)."""
    subject: str
    """The SQL expression for the subject in ``view``; empty if the group is the subject."""
    more: str
    """One more SQL condition for the rows of ``view``; may be empty."""
    page: str
    """The name of the report with more details."""
    what_to_do: str
    """The advice. ``{group}`` is the group's id, quoted for a shell, and ``{before}`` the moment
    before the incident began."""
    adds_up: bool = True
    """True if an incident's amount is the sum of its findings, False if it is the largest."""
    is_lasting: bool = False
    """True if a finding lasts for some time: an incident ends with its last finding. False if a
    finding happens at one moment: an incident stays open for ``quiet_minutes`` after its last
    finding."""
    least: str = ""
    """The name of the bound that the amount of an incident must reach; "" if there is none."""
    least_minutes: str = ""
    """The name of the bound that the length of an incident must reach; "" if there is none."""


_UNDO: Final = (
    "This plans the return to the moment before it, and changes nothing: `groupkeeper offsets "
    "restore --group {group} --as-of {before} --store STORE --server HOST:PORT`. Stop the "
    "consumers of the group first."
)
"""See docs/operate/restore.md."""

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="silent_group",
        severity=CRITICAL,
        title="A group commits nothing although it is behind",
        find=silent,
        unit="messages behind",
        view="gold_lag_1m",
        at="minute_ms",
        subject="",
        more="lag > 0",
        page="lag",
        adds_up=False,
        is_lasting=True,
        what_to_do="Look whether its consumers run, and at their logs. `groupkeeper group describe "
        "{group}` lists the members. If the group is no longer needed, delete it.",
    ),
    Rule(
        name="stalled_partition",
        severity=CRITICAL,
        title="A partition is stalled while its group works",
        find=stalled,
        unit="messages more behind",
        view="gold_lag_1m",
        at="minute_ms",
        subject="topic",
        more="lag > 0",
        page="lag",
        adds_up=False,
        is_lasting=True,
        what_to_do="Look at the consumer that owns the partition: often it fails at one message, "
        "again and again. Correct the cause, or move the offset past the message.",
    ),
    Rule(
        name="messages_skipped",
        severity=CRITICAL,
        title="Messages were skipped",
        find=skipped,
        unit="messages skipped",
        view="silver_commit_deltas",
        at="ts_ms",
        subject="topic",
        more="is_skip",
        page="audit",
        least="moved_messages",
        what_to_do=f"Ask the person who did it whether it was intended. If not, undo it. {_UNDO}",
    ),
    Rule(
        name="offsets_rewound",
        severity=WARNING,
        title="Offsets went back",
        find=rewound,
        unit="messages to be read again",
        view="gold_audit",
        at="ts_ms",
        subject="client_id || ' (' || client_host || ')'",
        more="messages_back > 0",
        page="audit",
        least="moved_messages",
        what_to_do="Ask the person who did it whether it was intended. Consumers read these "
        f"messages again. {_UNDO}",
    ),
    Rule(
        name="lag_above_slo",
        severity=WARNING,
        title="Lag is above the SLO",
        find=above_slo,
        unit="messages behind",
        view="gold_lag_1m",
        at="minute_ms",
        subject="topic",
        more="lag > 0",
        page="lag",
        adds_up=False,
        is_lasting=True,
        least_minutes="slo_minutes",
        what_to_do="Compare the rate of the group with that of the topic. Add consumers if there "
        "are more partitions than members; else find what slows them down.",
    ),
    Rule(
        name="rebalance_storm",
        severity=WARNING,
        title="A group rebalances again and again",
        find=storms,
        unit="rebalances",
        view="gold_rebalances",
        at="started_ms",
        subject="",
        more="",
        page="rebalances",
        what_to_do="Look at the member that causes most of them. If members fall silent, raise "
        "`session.timeout.ms` or `max.poll.interval.ms`. If they restart, use static members.",
    ),
    Rule(
        name="refused_zombies",
        severity=WARNING,
        title="Commits of a former member are refused",
        find=refused,
        unit="commits refused",
        view="gold_audit",
        at="ts_ms",
        subject="client_id || ' (' || client_host || ')'",
        more="action = 'rejected'",
        page="audit",
        least="refused_commits",
        what_to_do="The member lost its session and does not know. Look for long pauses of it. Its "
        "messages are consumed again by another member.",
    ),
)
"""All rules, the most severe first."""
