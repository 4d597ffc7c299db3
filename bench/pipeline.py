"""`make bench-pipeline`: the pipeline over a log of many events, beside plain Python.

    python -m bench.pipeline [--events N] [--keep DIR]

It writes a log of N events (1,000,000) and one of a tenth of that. Half of the events are commits
of 10 partitions, and all are of one day. For each log it runs two programs:

- ``groupkeeper pipeline run`` on two cores, in a separate process;
- ``bench.pipeline_plain``, one loop over the same files that makes the same tables in memory.

Exits with 1 if an event of the larger log costs more than 1.1 times the CPU time of an event of the
smaller log.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

DAY_MS: Final = 24 * 60 * 60 * 1000
START_MS: Final = 1_790_000_000_000 // DAY_MS * DAY_MS
DAY: Final = datetime.fromtimestamp(START_MS / 1000, UTC).strftime("%Y-%m-%d")
GROUPS: Final = 200
SEGMENT_EVENTS: Final = 80_000
"""About 64 MB of JSON, at which the daemon closes a segment."""
MAX_COST_RATIO: Final = 1.1
MEMORY: Final = "2g"


# --- the log --------------------------------------------------------------------------------------


def lines(events: int) -> Iterator[str]:
    """Yield events in the form of a segment, in order of time."""
    random = Random(1)
    offsets = [[0] * 10 for _ in range(GROUPS)]
    head = '{"log_id":"bench","seq":%d,"ts_ms":%d,"shard":0,"lease_epoch":1,'
    who = (
        '"group":"group-%d","generation":7,"member_id":"%s","instance_id":null,'
        '"client_id":"client-%d","client_host":"/10.0.0.1","principal":"User:ANONYMOUS","api":"",'
        '"group_type":"classic",'
    )
    row = '[%d,%d,%d,-1,""]'
    for seq in range(1, events + 1):
        ts_ms = START_MS + (seq - 1) * (DAY_MS - 1) // events
        group = random.randrange(GROUPS)
        common = head % (seq, ts_ms) + who % (group, f"member-{group}", group)
        if seq % 2:
            rows = []
            for number, before in enumerate(offsets[group]):
                after = before + 100 if random.random() > 0.0001 else max(0, before - 5000)
                offsets[group][number] = after
                rows.append(row % (number, after, before))
            topic = f'"topic":"topic-{group % 20}","topic_id":"","rows":[{",".join(rows)}]'
            yield (
                f'{common}"kind":"commit","commit_time_ms":{ts_ms},"expire_time_ms":-1,'
                f'"topics":[{{{topic}}}]}}\n'
            )
        else:
            yield common + _other(seq, group, offsets[group])


def _other(seq: int, group: int, offsets: list[int]) -> str:
    match seq // 2 % 5:
        case 0:
            return (
                '"kind":"member_join","protocols":["range"],"session_timeout_ms":45000,'
                '"rebalance_timeout_ms":300000,"replaces":null,"reason":null}\n'
            )
        case 1:
            return '"kind":"rebalance_start","reason":"member_join","members":1}\n'
        case 2:
            return (
                '"kind":"rebalance_end","duration_ms":120,"members":1,"awaited":[],'
                '"protocol_name":"range","leader_id":"m"}\n'
            )
        case 3:
            return '"kind":"commit_rejected","error":"ILLEGAL_GENERATION","count":1}\n'
        case _:
            rows = ",".join(
                f'{{"partition":{n},"offset":{offset + 500}}}' for n, offset in enumerate(offsets)
            )
            return (
                f'"kind":"end_offset","topics":[{{"topic":"topic-{group % 20}","topic_id":"",'
                f'"partitions":[{rows}]}}]}}\n'
            )


def write_log(folder: Path, events: int) -> int:
    """Write the segments. Return the size of their JSON in bytes."""
    day = folder / f"dt={DAY}"
    day.mkdir(parents=True)
    source, size, first = lines(events), 0, 1
    while first <= events:
        last = min(events, first + SEGMENT_EVENTS - 1)
        with gzip.open(day / f"events-bench-{first}-{last}.jsonl.gz", "wb", 1) as file:
            for _ in range(first, last + 1):
                data = next(source).encode()
                size += len(data)
                file.write(data)
        first = last + 1
    return size


# --- the measurement ------------------------------------------------------------------------------


def measure_spark(log_dir: Path, tables: Path) -> dict[str, Any]:
    """Run the pipeline in this process. Return its seconds, CPU seconds and memory, and the number
    of offsets and rewinds, which must be those of ``measure_plain``.
    """
    from pyspark.sql import functions as F

    from groupkeeper.pipeline import views
    from groupkeeper.pipeline.spark.session import spark_session
    from groupkeeper.pipeline.tables.bronze import read_events
    from groupkeeper.pipeline.tables.ingest import ingest
    from groupkeeper.pipeline.tables.lake import Lake
    from groupkeeper.pipeline.tables.offsets import offsets_as_of
    from groupkeeper.pipeline.tables.publish import publish

    began = time.monotonic()
    spark = spark_session("bench", master="local[2]", driver_memory=MEMORY)
    spark.range(1000).groupBy(F.col("id") % 7).count().collect()
    seconds = {"start": time.monotonic() - began}
    lake = Lake(str(tables))
    began = time.monotonic()
    ingest(spark, str(log_dir), lake)
    seconds["bronze"] = time.monotonic() - began
    began = time.monotonic()
    publish(spark, lake, progress=lambda done: print(f"    {done}", file=sys.stderr, flush=True))
    seconds["silver and gold"] = time.monotonic() - began
    began = time.monotonic()
    offsets = offsets_as_of(read_events(spark, lake)).count()
    seconds["offsets as of"] = time.monotonic() - began
    views(spark, lake.root)
    rewinds = spark.table("gold_audit").where("action = 'rewind'").count()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text()
    peak_kb = int(status.partition("VmHWM:")[2].split()[0])
    cpu = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = 100
    python = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_seconds": (int(cpu[11]) + int(cpu[12])) / ticks + python.ru_utime + python.ru_stime,
        "peak_mb": peak_kb // 1024,
        "offsets": offsets,
        "rewinds": rewinds,
    }


def measure_plain(log_dir: Path) -> dict[str, Any]:
    """Do the same work in plain Python, in this process. Return the same figures."""
    from bench.pipeline_plain import Tables

    began = time.monotonic()
    tables = Tables()
    tables.read(log_dir)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": {"all": time.monotonic() - began},
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss // 1024,
        "offsets": len(tables.offsets),
        "rewinds": len({seq for seq, action in tables.audit if action == "rewind"}),
    }


def in_a_process(what: str, *arguments: Path) -> dict[str, Any]:
    """Measure in a new process, which has no warm code and no grown heap."""
    command = [sys.executable, "-m", "bench.pipeline", "--measure", what, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(events: int, folder: Path) -> dict[str, float]:
    """Measure a log of so many events, and print the figures. Return the wall and CPU seconds for
    each event, of both programs.
    """
    log_dir = folder / f"log-{events}"
    began = time.monotonic()
    size = write_log(log_dir, events)
    files = sorted(log_dir.glob("dt=*/*.gz"))
    packed = sum(file.stat().st_size for file in files)
    print(
        f"\n{events:,} events, {size / 1e6:,.0f} MB of JSON, {packed / 1e6:,.0f} MB in "
        f"{len(files)} segments (written in {time.monotonic() - began:.0f} s)",
        flush=True,
    )
    costs = {}
    found = {}
    for what, arguments in (
        ("spark", (log_dir, folder / f"tables-{events}")),
        ("plain", (log_dir,)),
    ):
        result = found[what] = in_a_process(what, *arguments)
        work = {name: s for name, s in result["seconds"].items() if name != "start"}
        total = sum(work.values())
        parts = ", ".join(f"{name} {s:.1f} s" for name, s in work.items())
        print(
            f"  {what}: {events / total:,.0f} events/s ({total:.1f} s: {parts}), "
            f"{result['cpu_seconds']:.0f} s of CPU, peak {result['peak_mb']:,} MB",
            flush=True,
        )
        costs[what] = total / events
        costs[f"{what} cpu"] = result["cpu_seconds"] / events
    for name in ("offsets", "rewinds"):
        assert found["spark"][name] == found["plain"][name], f"they differ in {name}: {found}"
    shutil.rmtree(folder / f"tables-{events}")
    shutil.rmtree(log_dir)
    return costs


def main() -> int:
    """Run the benchmark. Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--measure", nargs="+")
    given = parser.parse_args()
    if given.measure:
        what, *paths = given.measure
        measure = measure_spark if what == "spark" else measure_plain
        print(json.dumps(measure(*map(Path, paths))))
        return 0
    with tempfile.TemporaryDirectory(dir=given.keep) as folder:
        small = compare(given.events // 10, Path(folder))
        large = compare(given.events, Path(folder))
    # CPU time, because wall time on a shared machine depends on the other load
    ratio = large["spark cpu"] / small["spark cpu"]
    print(
        f"\nbench-pipeline: {given.events:,} events: Spark {1 / large['spark']:,.0f} events/s on 2 "
        f"cores, plain Python {1 / large['plain']:,.0f} on 1; an event of the tenfold log costs "
        f"{ratio:.2f} times the processor time (at most {MAX_COST_RATIO}), "
        f"{large['spark'] / small['spark']:.2f} times the wall time"
    )
    return 0 if ratio <= MAX_COST_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
