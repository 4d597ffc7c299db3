"""The daemon seals its log: by size under load, over kill -9 in the middle of it, and for a person
who watches.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper import read_events
from groupkeeper.storage.event_log.check import verify
from tests.helpers.daemon.daemon import ROOT, Daemon
from tests.helpers.daemon.failpoint_daemon import SEALING_POINTS
from tests.helpers.wire.raw_client import RawClient

TOPIC = "orders"


class SealingDaemon(Daemon):
    """The daemon with small segments, which can be killed between two steps of sealing."""

    entry = ("-m", "tests.helpers.daemon.failpoint_daemon")

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            topics={TOPIC: 10},
            settings={
                "log.segment_bytes": 20_000,
                "log.segment_ms": 1_000,
                "log.end_offset_interval_ms": 200,
            },
        )
        self._order = directory / "failpoint"
        self.environment = {"FOLD_AFTER": "10", "FAILPOINT_FILE": str(self._order)}
        self.database = directory / "groupkeeper.db"
        self.log_dir = directory / "groupkeeper-log"
        self.last_offset = 0

    def arm(self, step: str) -> None:
        """Die when this step is done the next time."""
        ready = self._order.with_suffix(".new")
        ready.write_text(f"{step} 1")
        ready.rename(self._order)

    def disarm(self) -> None:
        self._order.unlink(missing_ok=True)

    def is_dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def commit(self, raw: RawClient) -> None:
        """Commit all partitions; remembers what was acknowledged."""
        offset = self.last_offset + 1
        rows = [
            {
                "partition_index": number,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": None,
            }
            for number in range(10)
        ]
        reply = raw.call(
            "offset_commit",
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": rows}],
        )
        assert reply["topics"][0]["partitions"][0]["error_code"] == 0
        self.last_offset = offset

    def commits(self) -> list[int]:
        """The offsets that were committed, in the order of the log: files and rows."""
        events = read_events(self.database, log_dir=self.log_dir)
        return [
            event["topics"][0]["partitions"][0]["offset"]
            for event in events
            if event["kind"] == "commit"
        ]

    def seqs(self) -> list[int]:
        return [event["seq"] for event in read_events(self.database, log_dir=self.log_dir)]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SealingDaemon]:
    daemon = SealingDaemon(tmp_path / "daemon")
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def port(daemon: Daemon) -> int:
    return int(daemon.bootstrap.rpartition(":")[2])


def test_a_kill_at_any_step_of_sealing_loses_and_doubles_nothing(daemon: SealingDaemon) -> None:
    for step in SEALING_POINTS:
        daemon.arm(step)
        with RawClient(port(daemon)) as raw:
            for _ in range(2_000):
                try:
                    daemon.commit(raw)
                except (OSError, EOFError):
                    break
        for _ in range(200):
            if daemon.is_dead():
                break
            time.sleep(0.05)
        assert daemon.is_dead(), step
        daemon.disarm()
        acknowledged = daemon.last_offset
        # One commit may have become durable whose answer was lost with the process. Where the
        # kill came before SQLite had put it into the index of the WAL, only the start finds it.
        possible = [list(range(1, acknowledged + more)) for more in (1, 2)]
        found = daemon.commits()
        assert found in possible, step
        daemon.start()
        after = daemon.commits()
        assert after in possible, step
        assert len(after) >= len(found)
        daemon.last_offset = len(after)
        seqs = daemon.seqs()
        assert seqs == list(range(1, len(seqs) + 1))
    # What its process has not begun with stays in the store at a clean stop.
    for _ in range(400):
        if daemon.metric("groupkeeper_log_unsealed_rows") < 100:
            break
        time.sleep(0.05)
    assert daemon.terminate() == 0
    report = verify(daemon.log_dir, reads_events=True)
    assert report.is_sound, report
    logs = report.logs  # one a start, and seqs go on from each to the next
    assert [log.first_seq for log in logs] == [1, *(log.last_seq + 1 for log in logs[:-1])]
    assert logs[-1].last_seq == daemon.seqs()[-1]
    # those that had their name when the kill came
    assert sum(log.segments for log in logs) >= 5


def test_the_daemon_tells_how_far_it_is_behind_and_samples_ends(daemon: SealingDaemon) -> None:
    with RawClient(port(daemon)) as raw:
        for _ in range(200):
            daemon.commit(raw)
    for _ in range(400):
        has_sealed = daemon.metric("groupkeeper_log_segments_sealed_total") >= 3
        if has_sealed and daemon.metric("groupkeeper_log_unsealed_rows") == 0:
            break
        time.sleep(0.05)
    assert daemon.metric("groupkeeper_log_segments_sealed_total") >= 3
    assert daemon.metric("groupkeeper_log_unsealed_rows") == 0
    assert daemon.metric("groupkeeper_log_sealing_failures_total") == 0
    assert daemon.metric("groupkeeper_log_last_seq") == daemon.seqs()[-1]
    daemon.terminate()
    ends = [
        (topic["topic"], row["partition"], row["offset"])
        for event in read_events(daemon.database)
        if event["kind"] == "end_offset"
        for topic in event["topics"]
        for row in topic["partitions"]
    ]
    assert ends[-1] == (TOPIC, 9, 200)
    assert (TOPIC, 0, 200) in ends
    live = list(read_events(daemon.database, live_only=True))
    assert len(live) < 100


def verified(daemon: Daemon) -> tuple[int, str]:
    """Run ``log verify`` with the settings of the daemon. Return its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "groupkeeper", "log", "verify", "--config", daemon.config_file],
        cwd=daemon.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_newest_files_that_are_missing_are_found_before_the_next_start(
    daemon: SealingDaemon,
) -> None:
    with RawClient(port(daemon)) as raw:
        for _ in range(200):
            daemon.commit(raw)
    for _ in range(400):
        if daemon.metric("groupkeeper_log_unsealed_rows") == 0:
            break
        time.sleep(0.05)
    assert verified(daemon)[0] == 0
    manifest = daemon.log_dir / "_manifest.jsonl"
    lines = manifest.read_bytes().splitlines(keepends=True)
    newest = json.loads(lines[-1])
    manifest.write_bytes(b"".join(lines[:-1]))
    (daemon.log_dir / newest["file"]).unlink()
    for is_running in (True, False):
        code, told = verified(daemon)
        assert code == 1, is_running
        assert f"to {newest['last_seq']} were moved into files" in told
        daemon.kill()


def test_a_person_watches_a_group(daemon: SealingDaemon) -> None:
    command = f"-m groupkeeper log tail -g g --follow --config {daemon.config_file}"
    tail = subprocess.Popen(
        [sys.executable, *command.split()],
        cwd=daemon.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert tail.stdout is not None
        with RawClient(port(daemon)) as raw:
            for _ in range(3):
                daemon.commit(raw)
            lines = [tail.stdout.readline() for _ in range(4)]
        assert "group_created" in lines[0]
        assert all("orders 0=" in line and "no member" in line for line in lines[1:])
    finally:
        tail.send_signal(signal.SIGINT)
        assert tail.wait(30) == 0
        tail.stdout.close()  # not before: a reader that goes ends it with another code
