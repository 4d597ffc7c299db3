"""``__consumer_offsets`` of a Kafka cluster, read through aiokafka into files, bytes as they are.

    DIR/partition-00007.jsonl.gz    {"offset": 12, "ts_ms": …, "key": "base64", "value": "base64"}
    DIR/dump.json                   what was read; written last, so a dump that has it is whole

A record's value is null where the broker took something back. Records of transactions that were
aborted are left out, and the read stops at the first one that is still open, as for every consumer
that reads what is committed. Nothing is decoded here: that is done again whenever it is wanted.
"""

from __future__ import annotations

import asyncio
import gzip
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

from pipeline.cluster import Endpoint

TOPIC: Final = "__consumer_offsets"
FORMAT: Final = "groupkeeper-offsets-dump"
FORMAT_VERSION: Final = 1
HEADER: Final = "dump.json"
CLIENT_ID: Final = "groupkeeper-dump"

STALLED_S: Final = 60.0
"""A read that brings nothing for so long has stopped for good."""
POLL_MS: Final = 1000
RECORDS_A_POLL: Final = 20_000
COMPRESSION_LEVEL: Final = 6

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many records were read, and at most how many there are."""


class DumpError(Exception):
    """A topic cannot be read, or a dump not; the message is one line."""


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """One record, as it was read."""

    offset: int
    ts_ms: int
    """When the broker appended it."""
    key: bytes
    value: bytes | None = None


class DumpedPartition(msgspec.Struct, frozen=True):
    """What was read of one partition of the topic."""

    partition: int
    file: str
    records: int
    start_offset: int
    end_offset: int


class Dump(msgspec.Struct, frozen=True):
    """A whole dump: the content of ``dump.json``."""

    format: str
    version: int
    id: str
    """Made of where and when it was read; imports are told apart by it."""
    server: str
    created_ms: int
    partitions: tuple[DumpedPartition, ...]

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(each.records for each in self.partitions)


def dump(
    source: Endpoint,
    directory: Path,
    created_ms: int,
    progress: Progress = lambda read, of: None,
) -> Dump:
    """Read the topic to where it ends now, and write it into a directory that has no dump yet.

    Raises DumpError. Runs a loop of its own until it is done.
    """
    if (directory / HEADER).exists():
        raise DumpError(f"{directory} already holds a dump: name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    partitions = asyncio.run(_dump(source, directory, progress))
    done = Dump(
        FORMAT, FORMAT_VERSION, f"import-{created_ms}", source.address, created_ms, partitions
    )
    _write_whole(directory / HEADER, msgspec.json.format(msgspec.json.encode(done), indent=1))
    return done


def open_dump(directory: Path) -> Dump:
    """Read what a dump says of itself. Raises DumpError."""
    try:
        found = msgspec.json.decode((directory / HEADER).read_bytes(), type=Dump)
    except FileNotFoundError:
        raise DumpError(
            f"{directory} holds no {HEADER}: no dump, or one that was not finished; make it again "
            "in an empty directory"
        ) from None
    except msgspec.DecodeError as error:
        raise DumpError(f"{directory / HEADER} is no dump: {error}") from None
    if (found.format, found.version) != (FORMAT, FORMAT_VERSION):
        raise DumpError(f"{directory / HEADER} is a {found.format!r} of version {found.version}")
    return found


def read_partition(path: Path) -> Iterator[RawRecord]:
    """Yield the records of one file, in the order of their offsets. Raises DumpError."""
    decoder = msgspec.json.Decoder(RawRecord)
    try:
        with gzip.open(path) as lines:
            for line in lines:
                yield decoder.decode(line)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise DumpError(f"{path} cannot be read: {error}") from None


# --- reading --------------------------------------------------------------------------------------


async def _dump(
    source: Endpoint, directory: Path, progress: Progress
) -> tuple[DumpedPartition, ...]:
    options = {"client_id": CLIENT_ID, **_settings(source)}
    admin = AIOKafkaAdminClient(**options)
    consumer = AIOKafkaConsumer(
        enable_auto_commit=False, isolation_level="read_committed", **options
    )
    try:
        await admin.start()
        await consumer.start()
        (topic,) = await admin.describe_topics([TOPIC])
        numbers = sorted(each["partition"] for each in topic["partitions"])
        if not numbers:
            raise DumpError(
                f"{source.address}: no {TOPIC} there: no group has ever committed to it"
            )
        return await _read(consumer, directory, numbers, progress)
    except (KafkaError, OSError) as error:
        raise DumpError(f"{source.address}: cannot read {TOPIC}: {error}") from None
    finally:
        await consumer.stop()
        await admin.close()


async def _read(
    consumer: AIOKafkaConsumer,
    directory: Path,
    numbers: Sequence[int],
    progress: Progress,
) -> tuple[DumpedPartition, ...]:
    assigned = [TopicPartition(TOPIC, number) for number in numbers]
    consumer.assign(assigned)
    starts = await consumer.beginning_offsets(assigned)
    ends = await consumer.end_offsets(assigned)
    with ExitStack() as files:
        writers = {each: _Writer(directory, each.partition, files) for each in assigned}
        await _copy(consumer, starts, ends, writers, progress)
        written = [writers[each].finish(starts[each], ends[each]) for each in assigned]
    return tuple(written)


async def _copy(
    consumer: AIOKafkaConsumer,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    writers: Mapping[TopicPartition, _Writer],
    progress: Progress,
) -> None:
    open_ones = [each for each in starts if starts[each] < ends[each]]
    consumer.assign(open_ones)
    for each in open_ones:
        consumer.seek(each, starts[each])
    total = sum(ends[each] - starts[each] for each in open_ones)
    position = dict(starts)
    stalled_s = 0.0
    while open_ones:
        batches = await consumer.getmany(*open_ones, timeout_ms=POLL_MS, max_records=RECORDS_A_POLL)
        for each, records in batches.items():
            writers[each].add([record for record in records if record.offset < ends[each]])
        # what was aborted, and the marks of transactions, move the position without a record
        now = {each: await consumer.position(each) for each in open_ones}
        stalled_s = 0.0 if any(now[e] > position[e] for e in now) else stalled_s + POLL_MS / 1000
        if stalled_s >= STALLED_S:
            raise DumpError(f"{TOPIC}-{open_ones[0].partition} brings nothing since {stalled_s} s")
        position.update(now)
        finished = [each for each in open_ones if now[each] >= ends[each]]
        if finished:
            consumer.pause(*finished)
            open_ones = [each for each in open_ones if each not in finished]
        progress(sum(min(position[e], ends[e]) - starts[e] for e in starts), total)


class _Writer:
    """The file of one partition in the making; it gets its name when it is whole."""

    def __init__(self, directory: Path, partition: int, files: ExitStack) -> None:
        self._partition = partition
        self._path = directory / f"partition-{partition:05}.jsonl.gz"
        self._scratch = self._path.with_suffix(".part")
        file = gzip.GzipFile(self._scratch, "wb", compresslevel=COMPRESSION_LEVEL)
        self._file = files.enter_context(file)
        self._encoder = msgspec.json.Encoder()
        self._records = 0

    def add(self, records: Sequence[Any]) -> None:
        lines = [
            self._encoder.encode(
                {
                    "offset": record.offset,
                    "ts_ms": record.timestamp,
                    "key": b64encode(record.key or b"").decode(),
                    "value": None if record.value is None else b64encode(record.value).decode(),
                }
            )
            for record in records
        ]
        if lines:
            self._file.write(b"\n".join(lines) + b"\n")
            self._records += len(lines)

    def finish(self, start: int, end: int) -> DumpedPartition:
        self._file.close()
        _sync(self._scratch)
        self._scratch.rename(self._path)
        return DumpedPartition(self._partition, self._path.name, self._records, start, end)


def _write_whole(path: Path, data: bytes) -> None:
    scratch = path.with_suffix(".part")
    scratch.write_bytes(data)
    _sync(scratch)
    scratch.rename(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _settings(source: Endpoint) -> dict[str, Any]:
    """Return the settings for aiokafka: kafka-python's, but for the files of TLS."""
    settings = source.for_python()
    found = {name: value for name, value in settings.items() if not name.startswith("ssl_")}
    if str(found.get("security_protocol", "")).endswith("SSL"):
        found["ssl_context"] = create_ssl_context(
            cafile=settings.get("ssl_cafile"),
            certfile=settings.get("ssl_certfile"),
            keyfile=settings.get("ssl_keyfile"),
            password=settings.get("ssl_password"),
        )
    return found
