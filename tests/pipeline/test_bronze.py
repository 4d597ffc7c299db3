"""Bronze is the same whatever form the lines of a segment have."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from groupkeeper.pipeline.log import segment_files
from groupkeeper.pipeline.log.columns import (
    BRONZE_SCHEMA,
    EVENT_SCHEMA,
    LINE_SCHEMA,
    STRING,
    extended,
)
from groupkeeper.pipeline.tables import bronze
from groupkeeper.pipeline.tables.bronze import read_bronze, read_events, read_segments
from groupkeeper.storage.event_log.segments import read_segment
from tests.helpers.storage.released_data import DATA
from tests.pipeline.events import commit

ODD_METADATA = (
    "",
    'quoted "twice"',
    "back\\slash, \\u0041 and \\n",
    "ünï, 事件, 🦆",
    "line\nbreak, tab\t, nul\0, bell\7, delete\x7f, next\x85, \u2028",
    '[0,1,2,3,"x"]',
    "null",
    " blanks ",
)


def written(log_dir: Path, events: list[dict], *, has_rows: bool) -> None:
    """Write a segment by hand: in the form of 0.1.0, or in that of today."""
    folder = log_dir / "dt=1970-01-01"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"events-{events[0]['log_id']}-{events[0]['seq']}-{events[-1]['seq']}.jsonl.gz"
    with gzip.open(folder / name, "wb") as file:
        for event in events:
            file.write(msgspec.json.encode(with_rows(event) if has_rows else event) + b"\n")


def with_rows(event: dict) -> dict:
    names = ("partition", "offset", "previous_offset", "leader_epoch", "metadata")
    topics = [
        {
            "topic": topic["topic"],
            "topic_id": topic["topic_id"],
            "rows": [[each[name] for name in names] for each in topic["partitions"]],
        }
        for topic in event["topics"]
    ]
    return event | {"topics": topics}


def rows_of(frame) -> list[dict]:
    names = [name for name in EVENT_SCHEMA.names if name != "store"]  # a reader fills it
    rows = frame.select(names).collect()
    return sorted((row.asDict(recursive=True) for row in rows), key=repr)


def rows_by_name(spark, log_dir: Path) -> list[dict]:
    """What Spark makes of the events as Python reads them: with names, whatever the file has."""
    events = [event for path in log_dir.glob("dt=*/events-*") for event in read_segment(path)]
    rows = [{name: event.get(name) for name in EVENT_SCHEMA.names} for event in events]
    return rows_of(spark.createDataFrame(rows, EVENT_SCHEMA))


@pytest.fixture(params=["killed", "stopped"])
def mixed(request, site):
    """A log that 0.1.0 began, and that goes on in the form of today."""
    shutil.copytree(DATA / "0.1.0" / request.param / "log", site.log_dir, dirs_exist_ok=True)
    new = [commit(seq, [("orders", p, seq, -1) for p in range(3)], log_id="b") for seq in (1, 2)]
    written(site.log_dir, new, has_rows=True)
    return site


def test_files_of_0_1_0_beside_new_ones_are_read_as_one(spark, mixed):
    found = rows_of(read_segments(spark, str(mixed.log_dir)))
    assert found == rows_by_name(spark, mixed.log_dir)
    commits = [row for row in found if row["kind"] == "commit"]
    assert {row["log_id"] == "b" for row in commits} == {True, False}
    assert all(part["offset"] >= 0 for row in commits for part in row["topics"][0]["partitions"])
    mixed.ingest()
    assert rows_of(read_events(spark, mixed.lake)) == found


def test_metadata_comes_through_both_forms_as_it_was_committed(site):
    logs = {"rows": True, "names": False}
    for log_id, has_rows in logs.items():
        event = commit(1, [("orders", 0, 7, 6)], log_id=log_id)
        (topic,) = event["topics"]
        (part,) = topic["partitions"]
        topic["partitions"] = [
            part | {"partition": number, "metadata": text}
            for number, text in enumerate(ODD_METADATA)
        ]
        written(site.log_dir, [event], has_rows=has_rows)
    site.ingest()
    found = {row["log_id"]: row["topics"] for row in read_events(site.spark, site.lake).collect()}
    assert found["rows"] == found["names"]
    parts = found["rows"][0]["partitions"]
    assert tuple(part["metadata"] for part in parts) == ODD_METADATA
    assert {(part["offset"], part["previous_offset"], part["leader_epoch"]) for part in parts} == {
        (7, 6, 3)
    }


@pytest.mark.parametrize("row", [[0, 7, 6, 3], ["x", 7, 6, 3, ""], 7])
def test_a_row_that_is_none_is_damage(site, row):
    event = with_rows(commit(1, [("orders", 0, 7, 6)]))
    event["topics"][0]["rows"] = [row]
    folder = site.log_dir / "dt=1970-01-01"
    folder.mkdir()
    with gzip.open(folder / "events-log-1-1.jsonl.gz", "wb") as file:
        file.write(msgspec.json.encode(event) + b"\n")
    with pytest.raises(Exception, match=r"(?i)array|cast|malformed"):
        read_segments(site.spark, str(site.log_dir)).collect()


def sealed_with(site, *lines: dict) -> None:
    """Seal lines as they are, with whatever fields they have."""
    folder = site.log_dir / "dt=1970-01-01"
    folder.mkdir(exist_ok=True)
    first, last = lines[0]["seq"], lines[-1]["seq"]
    with gzip.open(folder / f"events-log-{first}-{last}.jsonl.gz", "wb") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)


def test_a_field_that_is_not_known_is_kept_and_a_newer_version_reads_it(site, monkeypatch):
    plain, *others = [with_rows(commit(seq, [("orders", 0, seq, 0)])) for seq in (1, 2, 3)]
    of_event, in_row = others
    of_event["region"] = "north"
    in_row["topics"][0]["rows"][0].append("new")
    sealed_with(site, plain, of_event, in_row)
    site.ingest()
    rest = {row["seq"]: row["rest"] for row in read_bronze(site.spark, site.lake).collect()}
    assert rest.pop(1) is None
    assert {seq: msgspec.json.decode(text) for seq, text in rest.items()} == {
        2: of_event,
        3: in_row,
    }
    before = rows_of(read_events(site.spark, site.lake))

    more = (STRING, "region")
    for name, schema in (("LINE", LINE_SCHEMA), ("EVENT", EVENT_SCHEMA), ("BRONZE", BRONZE_SCHEMA)):
        monkeypatch.setattr(bronze, f"{name}_SCHEMA", extended(schema, more))
    sealed_with(site, with_rows(commit(4, [("orders", 0, 4, 0)])))
    site.ingest()
    events = read_events(site.spark, site.lake)
    assert dict(events.select("seq", "region").collect()) == {1: None, 2: "north", 3: None, 4: None}
    assert rows_of(events.where("seq < 4")) == before


def test_a_file_of_a_newer_schema_is_read_by_the_version_that_knows_it(site, monkeypatch):
    site.seal([commit(1, [("orders", 0, 1)])])
    manifest = site.log_dir / "_manifest.jsonl"
    listed = manifest.read_bytes()
    manifest.write_bytes(listed.replace(b'"schema_version":2', b'"schema_version":3'))
    (refused,) = site.ingest()
    assert refused.problem.startswith("was written by a newer groupkeeper (schema version 3")
    assert site.ingest() == [refused]
    monkeypatch.setattr(segment_files, "EVENT_SCHEMA_VERSION", 3)
    assert site.ingest() == []
    assert read_events(site.spark, site.lake).count() == 1


def test_the_events_of_a_group_are_together_in_a_file(site):
    events = [commit(seq, [("orders", 0, seq)], group=f"g{seq % 7}") for seq in range(1, 50)]
    site.seal(events)
    site.ingest()
    (file,) = Path(site.lake.events).glob("dt=*/batch_id=*/*.parquet")
    found = pq.read_table(file, columns=["group", "seq"]).to_pylist()
    assert len(found) == 49
    assert found == sorted(found, key=lambda row: (row["group"], row["seq"]))
