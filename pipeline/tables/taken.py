"""Finds out which files of events the tables have, so that these files can be deleted.

Each file is a segment: events of one log. Bronze is the table of all events. A *chain* is the logs
of one node, or of one shard in topics of Kafka, one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.tables.bronze import read_contents
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.verify import bronze_checks
from groupkeeper.pipeline.tables.versions import read_pointer
from groupkeeper.storage.event_log.snapshot_logs import base_log

Content = tuple[str, str]
"""The name of a segment's file, without its folder, and its checksum."""


class Taken(NamedTuple):
    """The files that may be deleted, and the chains of logs in the tables."""

    files: frozenset[Content]
    """The files whose events bronze has."""
    chains: list[frozenset[str]]
    """The logs of each chain. A log is left out if none of its events is valid, because an older
    copy of its store was restored."""


def taken(spark: SparkSession, lake: Lake, wanted: Collection[Content]) -> Taken:
    """Return which of the files ``wanted`` bronze has.

    A file counts only if bronze has all rows that were recorded for the days of the file, as
    ``verify`` checks them. Days that were removed from bronze because of their age are not checked,
    because bronze had their events.
    """
    judged, coverage = read_contents(spark, lake)
    parts: dict[Content, list[HeldSegment]] = defaultdict(list)
    for part in judged.held:
        if (part.segment, part.sha256) in wanted:
            parts[part.segment, part.sha256].append(part)
    days = {part.dt for of_file in parts.values() for part in of_file}
    since = read_pointer(spark, lake).bronze_since
    checks = bronze_checks(spark, lake, judged, sorted(day for day in days if day >= since))
    wrong = {check.day for check in checks if check.problem}
    files = (file for file, of in parts.items() if wrong.isdisjoint(part.dt for part in of))
    return Taken(frozenset(files), _chains(coverage))


def _chains(coverage: Coverage) -> list[frozenset[str]]:
    replaced = {log_id for log_id, last_seq in coverage.limits().items() if not last_seq}
    chains: dict[str, set[str]] = defaultdict(set)
    for log_id, chain in coverage.chains().items():
        if base_log(log_id) not in replaced:
            chains[chain].add(base_log(log_id))
    return [frozenset(logs) for _, logs in sorted(chains.items())]
