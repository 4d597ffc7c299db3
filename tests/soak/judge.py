"""What must hold, whatever happened: pure functions over what was written down.

Each returns its findings as sentences for a person; none means that it found nothing.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from tests.soak.ledger import Holding, Key, Ledger

TIMER_SLACK_MS = 3_000
"""How late a starved daemon may notice that a session has ended."""
SHOWN = 5
"""Findings of one kind that are told in full."""
GROWTH, GROWTH_MB = 1.3, 40
"""Memory of the last lives may be larger than that of the first ones by so much."""

STORE_IS_AWAY = ("append_failed", "load_failed", "open_failed", "load_refused", "store_given_up")
"""What the daemon logs while its disk is full or fails to sync, or its database is held or moved.
It goes on by itself. But after the last two it is never ready again, or ends, so if nothing was
done to its disk, it is found anyway."""


class History(NamedTuple):
    """What the event log tells of a run."""

    seqs: list[int]
    commits: list[tuple[Key, int]]
    """(partition, offset), in the order of the log."""
    evictions: list[dict[str, Any]]
    loads_ms: list[int]
    """When the shards were loaded: after a start, or when the store was away."""


def history_of(events: Iterable[Mapping[str, Any]]) -> History:
    """Take from the events what is judged."""
    history = History([], [], [], [])
    for event in events:
        history.seqs.append(event["seq"])
        if event["kind"] == "member_evicted":
            history.evictions.append(dict(event))
        elif event["kind"] == "shard_loaded":
            history.loads_ms.append(event["ts_ms"])
        elif event["kind"] == "commit":
            for topic in event["topics"]:
                for part in topic["partitions"]:
                    key = Key(event["group"], part["partition"])
                    history.commits.append((key, part["offset"]))
    return history


def hoarded(before_mb: float, worst_mb: float, budget_bytes: int, slack_mb: float) -> list[str]:
    """All connections together hold no more than the daemon's budget of memory."""
    most_mb = budget_bytes / 1_048_576 + slack_mb
    if worst_mb - before_mb <= most_mb:
        return []
    held_mb = worst_mb - before_mb
    return [f"hostile peers made the daemon hold {held_mb:.0f} MB, {most_mb:.0f} are allowed"]


def given_up(code: int, log_lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """After a failed sync the daemon says so, and exits with 1."""
    problems = [
        str(line.get("problem")) for line in log_lines if line.get("event") == "store_given_up"
    ]
    if code == 1 and len(problems) == 1 and "the disk failed to sync" in problems[0]:
        return []
    return [f"after a failed sync the daemon exited with {code}, and said {problems}"]


def lost_offsets(acknowledged: Mapping[Key, int], fetched: Mapping[Key, int]) -> list[str]:
    """Every acknowledged commit is at or below what OffsetFetch tells."""
    return shown(
        f"lost: {key.group}-{key.partition} was acknowledged at {offset}, OffsetFetch tells "
        f"{fetched.get(key, 'nothing')}"
        for key, offset in sorted(acknowledged.items())
        if fetched.get(key, -1) < offset
    )


def history_of_commits(ledger: Ledger, history: History, fetched: Mapping[Key, int]) -> list[str]:
    """The log has each acknowledged commit once, nothing that nobody sent, and OffsetFetch tells
    the last one of each partition.

    A library that repeats a commit which got no answer may find it in the log twice: both were
    asked for. A raw member repeats none, so there once is once, acknowledged or not.
    """
    times = Counter(history.commits)
    missing = sorted(ledger.acknowledged - times.keys())
    doubled = sorted(c for c, n in times.items() if n > 1 and c[1] not in ledger.repeats)
    invented = sorted(times.keys() - ledger.sent)
    last = dict(history.commits)
    return [
        *shown(f"not in the event log, though acknowledged: {_commit(c)}" for c in missing),
        *shown(f"{times[c]} times in the event log, sent once: {_commit(c)}" for c in doubled),
        *shown(f"in the event log, and nobody sent it: {_commit(c)}" for c in invented),
        *shown(
            f"the log ends with {last.get(key, 'nothing')} for {key.group}-{key.partition}, "
            f"OffsetFetch tells {fetched.get(key, 'nothing')}"
            for key in sorted(last.keys() | fetched.keys())
            if last.get(key) != fetched.get(key)
        ),
    ]


def repeated(history: History) -> int:
    """Commits that are in the log again because a library asked again."""
    return sum(n - 1 for n in Counter(history.commits).values())


def gaps(history: History) -> list[str]:
    """The event log counts its events without a gap."""
    expected = range(1, len(history.seqs) + 1)
    for seq, number in zip(history.seqs, expected, strict=True):
        if seq != number:
            return [f"the event log has {seq} where {number} belongs"]
    return []


class Evictions(NamedTuple):
    """Who was evicted, sorted by whose fault it was."""

    unjust: list[str]
    silenced: int
    """Members of processes that we killed or stopped."""
    starved: int
    """Members of processes that had no CPU for half a session: the machine is too small."""
    late: int
    """Members of libraries that did not find their way back within a session after an outage."""
    left_behind: int
    """Ids that nobody went by any more: a member that joined anew, or never learned of the id."""

    @property
    def total(self) -> int:
        return len(self.unjust) + self.silenced + self.starved + self.late + self.left_behind


def evictions(ledger: Ledger, history: History, until_ms: int | None = None) -> Evictions:
    """No member is evicted that kept heartbeating, until the clients were told to end.

    Every client heartbeats several times in half a session. So a member kept heartbeating if it
    went by that id until then, and its process was never without the CPU for half a session. A real
    library has to find us again after an outage, at its own pace: who is evicted one session after
    a load was not heard since. Raw members are back in two seconds, so for them that is no excuse.
    """
    unjust: list[str] = []
    silenced = starved = late = left_behind = 0
    for event in history.evictions:
        at_ms = event["ts_ms"]
        if until_ms is not None and at_ms > until_ms:
            break
        holding = ledger.holdings.get(event["member_id"])
        session_ms = ledger.sessions_ms[holding.host] if holding else 0
        if holding is None or not _held(holding, at_ms, session_ms):
            left_behind += 1
        elif longest_silence(ledger.pulses[holding.host], at_ms, session_ms) >= session_ms / 2:
            by_us = _silenced(ledger, holding.host, at_ms - session_ms, at_ms)
            silenced += by_us
            starved += not by_us
        elif holding.name.startswith("raw-") or not _follows(history.loads_ms, at_ms, session_ms):
            unjust.append(
                f"evicted though it kept heartbeating: {holding.name} of {event['group']}, "
                f"{event['reason']}, at {at_ms}, {event['member_id']}"
            )
        else:
            late += 1
    return Evictions(unjust, silenced, starved, late, left_behind)


def _follows(loads_ms: Sequence[int], at_ms: int, session_ms: int) -> bool:
    """Is it the first session after a load?"""
    first = bisect.bisect_left(loads_ms, at_ms - session_ms - TIMER_SLACK_MS)
    return first < len(loads_ms) and loads_ms[first] <= at_ms


def _silenced(ledger: Ledger, host: str, from_ms: int, until_ms: int) -> bool:
    """Did we kill or stop that host within that time?"""
    return any(
        silence.from_ms < until_ms and (silence.until_ms is None or silence.until_ms > from_ms)
        for silence in ledger.silenced.get(host, ())
    )


def _held(holding: Holding, at_ms: int, session_ms: int) -> bool:
    """Did somebody still go by that id half a session before?"""
    return holding.until_ms is None or holding.until_ms > at_ms - session_ms / 2


def longest_silence(pulses: Sequence[int], at_ms: int, session_ms: int) -> int:
    """The longest time without a pulse in the session that ended at a moment."""
    begin_ms = at_ms - session_ms
    first = max(0, bisect.bisect_right(pulses, begin_ms) - 1)
    last = bisect.bisect_left(pulses, at_ms)
    inside = [begin_ms, *(p for p in pulses[first:last] if p > begin_ms), at_ms]
    return max(after - before for before, after in pairwise(inside))


def memory(lives_mb: Sequence[float]) -> list[str]:
    """The memory of the last lives is about that of the first: the state does not grow."""
    third = len(lives_mb) // 3
    if third < 2:
        return []  # too few lives to tell growth from chance
    first, last = median(lives_mb[:third]), median(lives_mb[-third:])
    if last <= first * GROWTH + GROWTH_MB:
        return []
    return [f"memory grew: {first:.0f} MB in the first lives, {last:.0f} MB in the last"]


def slow_callbacks(log_lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """No callback of the daemon burned over 100 ms of its thread's CPU time."""
    return shown(
        f"a callback burned {line['cpu_ms']} ms: {line['callback']}"
        for line in log_lines
        if "callback" in line and "cpu_ms" in line
    )


def bugs(log_lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The daemon tells of no error but those of a store that cannot be written."""
    return shown(
        f"the daemon logged an error: {line}"
        for line in log_lines
        if line.get("level") == "error" and line.get("event") not in STORE_IS_AWAY
    )


def without_effect(faults: Collection[str], felt: Collection[str]) -> list[str]:
    """A fault that nobody felt has proved nothing."""
    return [f"the fault had no effect: {fault}" for fault in faults if fault not in felt]


def without_commits(ledger: Ledger, kinds: Collection[str], groups: int) -> list[str]:
    """Every kind of client and most groups had commits acknowledged: where nothing was promised,
    nothing can have been lost.
    """
    silent = sorted(kind for kind in kinds if not ledger.commits_of[kind])
    committed = len({key.group for key in ledger.largest})
    findings = [f"no commit of {kind} was acknowledged: this run shows nothing" for kind in silent]
    if 2 * committed <= groups:
        findings.append(
            f"commits of {committed} groups of {groups} were acknowledged: this run shows nothing"
        )
    return findings


def unrest(stable: int, groups: int, joined: int, members: int) -> list[str]:
    """After the last fault all groups are Stable, with at least their living members: an id that
    was left behind may wait for the end of its session.
    """
    if stable == groups and joined >= members:
        return []
    return [
        f"no rest after the last fault: {stable} groups of {groups} are Stable, with {joined:,} "
        f"members of {members:,}"
    ]


def _commit(commit: tuple[Key, int]) -> str:
    key, offset = commit
    return f"{key.group}-{key.partition} at {offset}"


def shown(findings: Iterable[str]) -> list[str]:
    """The first few of one kind, and how many more there are."""
    found = list(findings)
    more = len(found) - SHOWN
    return found if more <= 0 else [*found[:SHOWN], f"... and {more} more of these"]
