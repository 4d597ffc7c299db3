"""A clock that is set back over midnight: the later commit is on the earlier day."""

from __future__ import annotations

from datetime import date

from groupkeeper.pipeline.log.columns import ENDS_SCHEMA, EVENT_SCHEMA, STANDING_SCHEMA
from groupkeeper.pipeline.tables import gold
from groupkeeper.pipeline.tables.bronze import with_day, with_store
from groupkeeper.pipeline.tables.offsets import offset_changes
from tests.pipeline.events import DAY_MS, commit

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)
EVENTS = [
    commit(1, [("orders", 0, 5)], ts_ms=DAY_MS + 5_000),
    commit(2, [("orders", 0, 7)], ts_ms=DAY_MS - 15_000),
]


def test_the_later_of_two_commits_stands_on_both_days(spark):
    rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in EVENTS]
    changes = with_day(offset_changes(with_store(spark.createDataFrame(rows, EVENT_SCHEMA))))
    newest = gold.newest_by_day(changes)
    nothing = spark.createDataFrame([], STANDING_SCHEMA)
    at_once = gold.offsets_by_day(changes, newest, nothing, [FIRST, SECOND]).collect()
    assert {(row["dt"], row["offset"]) for row in at_once} == {(FIRST, 7), (SECOND, 7)}
    first = gold.offsets_by_day(changes.where("offset = 7"), newest, nothing, [FIRST])
    second = changes.where("offset = 5")
    newest_of_second = gold.newest_by_day(second)
    after = gold.offsets_by_day(second, newest_of_second, first, [SECOND]).collect()
    assert [row["offset"] for row in after] == [7], "one by one, as all at once"
    no_ends = spark.createDataFrame([], ENDS_SCHEMA)
    lag = gold.lag_1m(changes, newest, nothing, no_ends, no_ends, [FIRST, SECOND]).collect()
    assert {row["offset"] for row in lag if row["dt"] == SECOND} == {7}
