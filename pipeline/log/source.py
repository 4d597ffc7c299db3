"""Reads the event log of a running daemon as rows of Spark, including the newest events.

    spark.dataSource.register(EventLogSource)
    spark.read.format("groupkeeper_log").load("groupkeeper.db").where("kind = 'commit'")
    spark.readStream.format("groupkeeper_log").load("postgresql://db/offsets")

Use this source to look at recent events. While the daemon runs, one Python process reads its
segments (files of events), and the events in the store that are not in a segment yet. The rows have
the columns of ``pipeline.tables.bronze.read_events``, and ``pipeline.tables.offsets.offsets_as_of``
accepts both. Tables are built from segments alone (``pipeline.tables.bronze``), because every
worker of a cluster can read segments, and Spark reads segments without Python.

Options:

- ``path``: the SQLite file, or the URL of a store as in ``storage.url``. The password for a server
  comes from the environment. All logs of the store are read.
- ``log_dir``: the directory of the store's segments, if they were moved.
- ``group``: only this group.
- ``after_seq`` and ``since_ms``: only later events. ``after_seq`` is for a store with one log.
- ``accept_gaps``: ``true`` to continue after missing events. Otherwise missing events raise
  MissingEvents.
- ``max_events``: the most events in one batch of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from groupkeeper.pipeline.log.columns import EVENT_SCHEMA
from groupkeeper.storage.event_log.reader import Asked, read_events
from groupkeeper.storage.event_log.several_logs import ONLY_LOG, Logs, end_of, read_logs
from groupkeeper.storage.event_log.snapshot_logs import base_log
from groupkeeper.storage.open import log_store, url_error, without_password
from groupkeeper.storage.password_file import read_password

FORMAT: Final = "groupkeeper_log"
"""The name for ``spark.read.format``."""

BATCH_EVENTS: Final = 2_000
"""The number of events that are passed to the JVM at once."""

MAX_EVENTS: Final = 200_000
"""Default of ``max_events``: the events in one batch of a stream."""


OPTIONS: Final = frozenset(
    {
        "path",
        "password_file",
        "log_dir",
        "group",
        "after_seq",
        "since_ms",
        "accept_gaps",
        "max_events",
    }
)


class MissingEvents(Exception):
    """Requested events are missing, or their file has a problem."""


@dataclass
class Range(InputPartition):
    """The events after the position ``after``, up to and including the position ``until``. A
    position maps each log of the store to the number of an event (``seq``).
    """

    after: dict[str, int]
    until: dict[str, int]


class EventLogSource(DataSource):
    """The Spark data source that reads the event log of a store (a batch or a stream)."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises ValueError if an option is wrong. The options are checked here, because Spark does
        not show the errors that the reader of a stream raises.
        """
        super().__init__(options)
        self._log = _Log(dict(options))

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of the rows: the fields of an event."""
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._log)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._log)


class _Log:
    """The logs of one store, and the options with which they are read."""

    def __init__(self, options: dict[str, str]) -> None:
        unknown = sorted(options.keys() - OPTIONS)
        if unknown:
            raise ValueError(
                f"{FORMAT} has no option {unknown[0]!r}: it knows {', '.join(sorted(OPTIONS))}"
            )
        if "path" not in options:
            raise ValueError(f"{FORMAT} needs a path: the daemon's SQLite file, or a URL")
        self.where = _place_of(options["path"])
        self.path = self.where if isinstance(self.where, Path) else without_password(self.where)
        self.password_file = options.get("password_file", "")
        self.log_dir = options.get("log_dir")
        self.group = options.get("group")
        self.after_seq = _number(options, "after_seq", 0)
        self.since_ms = _number(options, "since_ms", 0)
        self.accepts_gaps = _is_true(options, "accept_gaps")
        self.max_events = _number(options, "max_events", MAX_EVENTS)
        if not self.max_events:  # otherwise every batch would be empty, without an error
            raise ValueError(f"{FORMAT}: max_events must be at least 1")

    def _logs(self) -> Logs:
        """Return the logs of the store. The result is not kept, because Spark copies this object to
        other processes, and an open store cannot be copied.
        """
        return log_store(
            self.where, read_password(self.password_file, "password_file"), self.group
        ).logs()

    def begin(self) -> dict[str, int]:
        """Return the position after which events are read: ``after_seq`` in each log.

        Raises ValueError if ``after_seq`` is given and the store has several logs.
        """
        names = [*self._logs()]
        if self.after_seq and len(names) > 1:
            raise ValueError(
                f"{FORMAT}: after_seq: {self.path} has a log for each of {', '.join(names)}, and "
                "each log has a seq of its own"
            )
        return dict.fromkeys(names, self.after_seq)

    def end(self) -> dict[str, int]:
        """Return the position of the last durable event of each log."""
        return {**end_of(self._logs())}

    def rows(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """Yield the events of a range as Arrow batches, in order."""
        schema = to_arrow_schema(EVENT_SCHEMA)
        events = self._events(wanted)
        store = self._store()
        while batch := [{**event, "store": store} for event in islice(events, BATCH_EVENTS)]:
            yield pa.RecordBatch.from_pylist(batch, schema=schema)

    def _store(self) -> str | None:
        """Return the name of the store for the column ``store``; None if there is no event. It is
        the log id of the oldest event in the first log that has events.

        All rows have the same name, even if the store has several logs: all these logs together
        have the offsets of the store. A store has several logs if, for example, several nodes use
        it.
        """
        for open_rows in self._logs().values():
            events = read_events(
                open_rows, log_dir=self.log_dir, passes_absent=True, on_damage=_pass_over
            )
            with closing(events) as found:
                for event in found:
                    return base_log(event["log_id"])
        return None

    def _events(self, wanted: Range) -> Iterator[dict[str, Any]]:
        """Yield the events of a range.

        Raises MissingEvents if events are missing or damaged, and ``accept_gaps`` is not set.
        """

        def asked_in(log: str) -> Asked:
            return {"on_gap": partial(self._gap, log, wanted)}

        def on_damage(_: object, what: str) -> None:
            if not self.accepts_gaps:
                raise MissingEvents(f"{what}. {_ACCEPT}")

        return read_logs(
            self._logs(),
            wanted.after,
            wanted.until,
            asked_in,
            log_dir=self.log_dir,
            group_id=self.group,
            since_ms=self.since_ms,
            passes_absent=True,
            on_damage=on_damage,
        )

    def _gap(self, log: str, wanted: Range, first_seq: int, last_seq: int) -> None:
        if first_seq <= wanted.until.get(log, 0) and not self.accepts_gaps:
            of_log = f" of log {log}" if len(wanted.until) > 1 else ""
            raise MissingEvents(
                f"events {first_seq} to {last_seq}{of_log} are neither in {self.path} nor in its "
                f"segments: log_dir says where these are, if they were moved. {_ACCEPT}"
            )


_ACCEPT: Final = "With the option accept_gaps, the other events are read"


def _pass_over(_: object, __: str) -> None:
    """Do nothing about a damaged segment while the oldest event is searched. ``_events`` raises an
    error if the events of the segment are requested.
    """


def _number(options: dict[str, str], name: str, default: int) -> int:
    given = options.get(name, str(default))
    if not given.strip().isdecimal():
        raise ValueError(f"{FORMAT}: {name} must be a whole number, not {given!r}")
    return int(given)


def _is_true(options: dict[str, str], name: str) -> bool:
    given = options.get(name, "false").strip().lower()
    if given not in ("true", "false"):
        raise ValueError(f"{FORMAT}: {name} must be true or false, not {given!r}")
    return given == "true"


def _place_of(path: str) -> Path | str:
    """Return the file of a store, or the URL of another store. Raises ValueError if there is no
    such file, or if the URL is wrong.
    """
    scheme, is_url, rest = path.partition(":///")
    if is_url and scheme in ("sqlite", "file"):
        path = rest if scheme == "sqlite" else f"/{rest}"
    elif "://" in path:
        if problem := url_error(path):
            raise ValueError(f"{FORMAT}: {problem.removeprefix('storage.url: ')}")
        return path
    if not Path(path).is_file():
        raise ValueError(f"{FORMAT}: {path}: there is no such file; path names a SQLite store")
    return Path(path)


class _Reader(DataSourceReader):
    """Reads all requested events in one Spark task, so their order is kept."""

    def __init__(self, log: _Log) -> None:
        self._log = log

    def partitions(self) -> Sequence[InputPartition]:
        return [Range(self._log.begin(), self._log.end())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        yield from self._log.rows(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. The offsets of the stream are positions in the event log.

    ``{"seq": 17}`` is the position after event 17 of a store that always has one log. Other stores
    have a seq for each log: ``{"1": 17, "2": 3}``.
    """

    def __init__(self, log: _Log) -> None:
        self._log = log
        self._until: dict[str, int] | None = None
        """The position at which a query with the trigger ``availableNow`` ends. None if the query
        has no end."""

    def initialOffset(self) -> dict[str, int]:
        return _offset(self._log.begin())

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._log.end()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._log.max_events)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        after = _position(start)
        end = self._log.end() if self._until is None else self._until
        # other limits ask for all events, whatever the options say
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        latest = dict(after)
        for log, last_seq in end.items():
            begin = after.get(log, 0)
            taken = max(last_seq - begin, 0)
            if left is not None:
                taken = min(taken, left)
                left -= taken
            latest[log] = begin + taken
        return _offset(latest)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [] if start == end else [Range(_position(start), _position(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        yield from self._log.rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the source keeps no state."""


_SEQ: Final = "seq"
"""The key in an offset of a stream for the log of a store that always has one log."""


def _offset(position: dict[str, int]) -> dict[str, int]:
    return {name or _SEQ: seq for name, seq in position.items()}


def _position(offset: dict[str, int]) -> dict[str, int]:
    return {ONLY_LOG if name == _SEQ else name: seq for name, seq in offset.items()}
