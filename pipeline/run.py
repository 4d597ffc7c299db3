"""The job of every day: segments into bronze, and what changed into silver and gold.

``groupkeeper pipeline run`` is this. So is, on a cluster::

    spark-submit --py-files groupkeeper-0.1.0-py3-none-any.whl \\
        pipeline/run.py --log-dir s3a://bucket/log --out s3a://bucket/tables
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from datetime import date

from pyspark.sql import SparkSession

from pipeline.ingest import ingest, start_ingest
from pipeline.lake import Lake
from pipeline.publish import Publication, publish
from pipeline.session import spark_session


def run(
    spark: SparkSession,
    log_dir: str,
    out: str,
    *,
    continuous: bool = False,
    accept_gaps: Collection[date] = (),
    say: Callable[[str], object],
) -> bool:
    """Bring the tables up to date, once or for ever; returns whether no day is held back."""
    lake = Lake(out.rstrip("/"))

    def publish_what_changed() -> Publication:
        done = publish(spark, lake, accept_gaps=accept_gaps, progress=say)
        for line in told(done):
            say(line)
        return done

    if continuous:
        start_ingest(
            spark, log_dir, lake, continuous=True, after_batch=publish_what_changed
        ).awaitTermination()
    say(f"reading sealed segments from {log_dir}")
    ingest(spark, log_dir, lake)
    return not publish_what_changed().held_back


def told(done: Publication) -> list[str]:
    """Say what a run did."""
    lines = []
    if done.published:
        first, last = done.published[0], done.published[-1]
        days = str(first) if first == last else f"{len(done.published)} days, {first} to {last}"
        lines.append(f"published {days}, from {done.events:,} events")
    for day, gaps in sorted(done.held_back.items()):
        missing = "; ".join(map(str, gaps))
        lines.append(
            f"{day} is not published: {missing}. It will be when their segment is there; "
            f"--accept-gap {day} publishes it without"
        )
    return lines or ["nothing has changed"]


def main(arguments: list[str] | None = None) -> int:
    """Run under spark-submit; returns the exit code."""
    parser = argparse.ArgumentParser(description="Bring the tables up to date.")
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--continuous", action="store_true")
    parser.add_argument("--accept-gap", action="append", type=date.fromisoformat, default=[])
    given = parser.parse_args(arguments)
    spark = spark_session("pipeline")
    is_complete = run(
        spark,
        given.log_dir,
        given.out,
        continuous=given.continuous,
        accept_gaps=given.accept_gap,
        say=lambda what: sys.stderr.write(f"{what}\n"),
    )
    return 0 if is_complete else 1


if __name__ == "__main__":
    raise SystemExit(main())
