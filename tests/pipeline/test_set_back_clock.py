"""A clock that is set back over midnight: the later commit is on the earlier day."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame

from groupkeeper.pipeline.log.columns import ENDS_SCHEMA, EVENT_SCHEMA, STANDING_SCHEMA
from groupkeeper.pipeline.tables import gold, silver
from groupkeeper.pipeline.tables.bronze import with_store
from groupkeeper.pipeline.tables.lag import lag_1m
from tests.pipeline.events import DAY_MS, commit

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)
EVENTS = [
    commit(1, [("orders", 0, 5)], ts_ms=DAY_MS + 5_000),
    commit(2, [("orders", 0, 7)], ts_ms=DAY_MS - 15_000),
]


def test_the_later_of_two_commits_stands_on_both_days(spark):
    rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in EVENTS]
    events = with_store(spark.createDataFrame(rows, EVENT_SCHEMA))
    deltas, others = silver.commit_deltas(events), silver.other_changes(events)
    nothing = spark.createDataFrame([], STANDING_SCHEMA)

    def offsets(of_day: str, before: DataFrame, days: list[date]) -> DataFrame:
        rows = deltas.where(of_day)
        newest = gold.newest_by_day(gold.minutes(rows, others))
        changes = gold.all_changes(rows, others)
        return gold.offsets_by_day(changes, newest, nothing, before, days)

    at_once = offsets("true", nothing, [FIRST, SECOND]).collect()
    assert {(row["dt"], row["offset"]) for row in at_once} == {(FIRST, 7), (SECOND, 7)}
    first = offsets("offset = 7", nothing, [FIRST])
    after = offsets("offset = 5", first, [SECOND]).collect()
    assert [row["offset"] for row in after] == [7], "one by one, as all at once"
    no_ends = spark.createDataFrame([], ENDS_SCHEMA)
    no_samples = gold.sampled_minutes(no_ends)
    minutes = gold.minutes(deltas, others)
    newest = gold.newest_by_day(minutes)
    lag = lag_1m(minutes, newest, nothing, no_samples, no_ends, [FIRST, SECOND]).collect()
    assert {row["offset"] for row in lag if row["dt"] == SECOND} == {7}
