"""The job that brings the tables up to date. It can be run as often as you like.

The job reads new segments (the daemon's files of events) into bronze, the table of all events. Then
it computes the changed days in silver (facts about groups) and gold (summaries). Run it with
``groupkeeper pipeline run``, or on a cluster with::

    spark-submit --py-files groupkeeper-0.2.0.dev13-py3-none-any.whl \\
        pipeline/run.py --log-dir s3a://bucket/log --out s3a://bucket/tables
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.segment_files import ABSENT, Lacking
from groupkeeper.pipeline.spark.session import spark_session
from groupkeeper.pipeline.tables.address import pattern_problem
from groupkeeper.pipeline.tables.compaction import RUN_PAST_DAY_PARTS
from groupkeeper.pipeline.tables.files import replace_local
from groupkeeper.pipeline.tables.ingest import ingest, ingest_for_ever
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.lake_lock import TablesBusy, local_folder, only_writer
from groupkeeper.pipeline.tables.last_run import FILE, Sight, content_of
from groupkeeper.pipeline.tables.maintenance import (
    NO_RETENTION,
    RUN_LOOKS_BACK_DAYS,
    Maintained,
    maintain,
)
from groupkeeper.pipeline.tables.pointer import UnknownFormat
from groupkeeper.pipeline.tables.publish import Publication, publish
from groupkeeper.pipeline.tables.retention import parse_retention
from groupkeeper.pipeline.tables.versions import KEEP_VERSIONS_HOURS

BUSY: Final = 5
"""Exit code: another job writes these tables."""


def run(  # noqa: PLR0913  the options of a command
    spark: SparkSession,
    log_dir: str,
    out: str,
    *,
    continuous: bool = False,
    accept_gaps: Collection[date] = (),
    again: tuple[date, date] | None = None,
    keep_versions_hours: float = KEEP_VERSIONS_HOURS,
    retention_days: Mapping[str, int] = NO_RETENTION,
    saw: Sight | None = None,
    before_each: Callable[[], object] | None = None,
    after_good: Callable[[SparkSession, Lake], Iterable[str]] | None = None,
    say: Callable[[str], object],
) -> bool:
    """Bring the tables up to date once. With ``continuous``, do this every minute and never return.

    Return False if a day could not be computed because events are missing, or if
    ``problems_of_files`` finds a problem.

    - ``saw``: the inputs of this run, as they were before the log was read. They are written to a
      file. If the next run finds the same inputs, it ends without starting Spark.
    - ``before_each``: with ``continuous``, it is called before each round except the first.
    - ``after_good``: is called at the end of each round without a problem, and returns lines for
      the user.
    - ``say``: is called with each line for the user.
    """
    lake = Lake(out.rstrip("/"))
    last_said: list[str] = []

    def publish_what_changed(lacking: Sequence[Lacking]) -> bool:
        done = publish(
            spark,
            lake,
            accept_gaps=accept_gaps,
            again=again,
            keep_versions_hours=keep_versions_hours,
            progress=say,
        )
        maintained = maintain(
            spark,
            lake,
            retention_days=retention_days,
            keep_versions_hours=keep_versions_hours,
            look_back_days=RUN_LOOKS_BACK_DAYS,
            past_day_parts=RUN_PAST_DAY_PARTS,
        )
        for line in maintenance_lines(maintained):
            say(line)
        problems = problems_of_files(lacking, done)
        remarks = problems + [
            f"--accept-gap {day}: no event of that day is missing"
            for day in accept_gaps
            if not any(gap.touches(day) for gap in done.accepted)
        ]
        lines = [*summary(done), *remarks]
        is_sound = not done.held_back and not problems
        if saw is not None:
            next_lines = [*summary(replace(done, published=[])), *remarks]
            _note(saw, out, next_lines, is_sound=is_sound)
        if lines != last_said:  # in continuous mode, most rounds have the same lines
            for line in lines:
                say(line)
        last_said[:] = lines
        if is_sound and after_good is not None:
            for line in after_good(spark, lake):
                say(line)
        return is_sound

    say(f"reading sealed segments from {log_dir}")
    if continuous:
        ingest_for_ever(spark, log_dir, lake, publish_what_changed, before_each)
    return publish_what_changed(ingest(spark, log_dir, lake))


def _note(saw: Sight, out: str, lines: Sequence[str], *, is_sound: bool) -> None:
    content = content_of(saw, out, lines, is_sound=is_sound)
    folder = local_folder(out)
    if content is not None and folder is not None:
        replace_local(folder / FILE, content)


def problems_of_files(lacking: Iterable[Lacking], done: Publication) -> list[str]:
    """Return a message for each file that has a problem, but whose events are not missing. Files
    that do not exist are left out. So are files that a message about missing events names.
    """
    gaps = [*done.accepted, *(gap for gaps in done.held_back.values() for gap in gaps)]
    named = {problem for gap in gaps for problem in gap.problems}
    return [
        f"{each}. It was not read. No event is known to be missing because of it: they were read "
        "before, or from another file. Put a good copy in its place, or move it away"
        for each in lacking
        if each.problem != ABSENT and str(each) not in named
    ]


def summary(done: Publication) -> list[str]:
    """Return the lines that a run prints about its result."""
    lines = []
    if done.published:
        lines.append(f"published {_days(done.published)}, from {done.events:,} events")
        lines += [
            f"{gap.days_text} and later days: published although {gap}" for gap in done.accepted
        ]
        lines += map(str, done.put_backs)
    lines += [
        f"{day}: a segment came after retention had removed the events of that day. Only "
        "bronze has it"
        for day in done.late
    ]
    return [*lines, *_held_back(done)] or ["nothing has changed"]


def maintenance_lines(done: Maintained) -> list[str]:
    """Return the lines that a run prints about merged files and removed days."""
    merged = [f"merged the small files of {_days(done.merged)}"] if done.merged else []
    return merged + [
        f"{layer} begins with {day} now: earlier days were removed because of their age"
        for layer, day in sorted(done.since.items())
    ]


def _held_back(done: Publication) -> list[str]:
    """Return the lines about the days that could not be computed: days with missing events, and all
    later days.
    """
    lines, after = [], []
    for day, gaps in sorted(done.held_back.items()):
        missing = [str(gap) for gap in gaps if gap.touches(day)]
        if not missing:
            after.append(day)
            continue
        remains = "stays as it was published" if day in done.stale else "is not published"
        lines.append(
            f"{day} {remains}: {'; '.join(missing)}. Put a good copy of the "
            "segment in its place (`groupkeeper log verify --dir DIR` checks all), or publish the "
            f"day without these events: --accept-gap {day}"
        )
    for state, of_state in _by_state(after, done.stale):
        lines.append(
            f"{_days(of_state)}: {state}, because offsets, members and ends of these "
            "days depend on the missing events"
        )
    return lines


def _by_state(days: Sequence[date], stale: Collection[date]) -> Iterator[tuple[str, list[date]]]:
    """Divide days into those whose earlier tables stay, and those that are not published. Yield the
    text for each kind, and its days.
    """
    for state, is_stale in (
        ("not brought up to date either", True),
        ("not published either", False),
    ):
        if of_state := [day for day in days if (day in stale) == is_stale]:
            yield state, of_state


def _days(days: Sequence[date]) -> str:
    if len(days) == 1:
        return str(days[0])
    return f"{len(days)} days, {days[0]} to {days[-1]}"


def _literal(address: str) -> str:
    """Return an address. Raises ArgumentTypeError if Spark would read it as a pattern."""
    if problem := pattern_problem(address):
        raise argparse.ArgumentTypeError(problem)
    return address


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments of spark-submit and run the job. Return the exit code: 0 if the tables
    are up to date, 1 if there is a problem, or BUSY.
    """
    parser = argparse.ArgumentParser(description="Bring the tables up to date.")
    parser.add_argument("--log-dir", required=True, type=_literal)
    parser.add_argument("--out", required=True, type=_literal)
    parser.add_argument("--continuous", action="store_true")
    parser.add_argument("--accept-gap", action="append", type=date.fromisoformat, default=[])
    parser.add_argument("--keep-versions-hours", type=float, default=KEEP_VERSIONS_HOURS)
    parser.add_argument("--retention-days", action="append", default=[], metavar="LAYER=DAYS")
    given = parser.parse_args(arguments)
    try:
        retention_days = parse_retention(given.retention_days)
    except ValueError as error:
        parser.error(str(error))
    try:
        with only_writer(given.out):
            is_complete = run(
                spark_session("pipeline"),
                given.log_dir,
                given.out,
                continuous=given.continuous,
                accept_gaps=given.accept_gap,
                keep_versions_hours=given.keep_versions_hours,
                retention_days=retention_days,
                say=lambda what: sys.stderr.write(f"{what}\n"),
            )
    except TablesBusy as error:
        sys.stderr.write(f"{error}\n")
        return BUSY
    except UnknownFormat as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0 if is_complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
