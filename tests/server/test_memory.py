"""What the daemon's memory is after something large."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

from tests.helpers.daemon.daemon import Daemon
from tests.helpers.wire.raw_client import RawClient

PARTITIONS = 65_539
BUDGET_BYTES = 33_554_432
MOST_GROWTH_KB = 7_000
"""The answers take 1.4 to 1.8 MB each. With all of them kept it grows by 30 MB, with what glibc
keeps of its own accord by 9, as it is by 4.
"""


def test_large_answers_leave_nothing_behind(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, topics={"orders": 4}).start()
    try:
        port = int(daemon.bootstrap.rpartition(":")[2])
        with RawClient(port, timeout_s=30) as client:
            ask_in_every_version(client)  # what is loaded once is no matter
            before_kb = rss_kb(daemon)
            new = {"name": "huge", "num_partitions": 1, "replication_factor": 1}
            client.call("create_topics", 4, topics=[new])
            for count in (*range(10_000, PARTITIONS, 10_000), PARTITIONS):  # no more at once
                grown = {"name": "huge", "count": count, "assignments": None}
                client.call("create_partitions", 3, topics=[grown])
            assert ask_in_every_version(client) > 12 * PARTITIONS * 18
            client.call("delete_topics", 4, topic_names=["huge"])
            assert rss_kb(daemon) - before_kb < MOST_GROWTH_KB
    finally:
        daemon.stop()


def test_peers_together_make_it_hold_no_more_than_the_budget(tmp_path: Path) -> None:
    """Three times as much in frames that never become whole; a member goes on heartbeating."""
    settings = {"kafka.max_buffered_bytes": BUDGET_BYTES}
    daemon = Daemon(tmp_path, storage_url="memory:", settings=settings).start()
    peers: list[socket.socket] = []
    try:
        port = int(daemon.bootstrap.rpartition(":")[2])
        with RawClient(port, timeout_s=30) as client:
            heartbeat(client)
            before_kb = rss_kb(daemon)
            for _ in range(24):
                peer = socket.create_connection(("127.0.0.1", port), timeout=0.2)
                peers.append(peer)
                with contextlib.suppress(OSError):  # it is read no further, or closed
                    peer.sendall(struct.pack(">i", 8_000_000) + bytes(4_000_000))
                heartbeat(client)
            assert rss_kb(daemon) - before_kb < BUDGET_BYTES // 1024 * 5 // 4
            assert daemon.metric("groupkeeper_reading_paused_total") > 0
            assert daemon.metric("groupkeeper_buffered_bytes") <= BUDGET_BYTES
    finally:
        for peer in peers:
            peer.close()
        daemon.stop()


def test_replies_that_nobody_reads_leave_nothing_behind(tmp_path: Path) -> None:
    """What was freed lies between what is in use: glibc alone would keep most of it."""
    settings = {"kafka.max_buffered_bytes": 4 * BUDGET_BYTES}
    daemon = Daemon(
        tmp_path, storage_url="memory:", settings=settings, topics={"orders": 3_200}
    ).start()
    peers: list[RawClient] = []
    try:
        port = int(daemon.bootstrap.rpartition(":")[2])
        with RawClient(port, timeout_s=30) as client:
            commit_metadata(client, 3_200)
            before_kb = most_kb = rss_kb(daemon)
            peers.extend(RawClient(port, timeout_s=30) for _ in range(30))
            for peer in peers:  # at the same time: all replies are made at once
                peer.send("offset_fetch", 7, group_id="g", topics=None, require_stable=False)
            for _ in range(100):
                heartbeat(client)
                most_kb = max(most_kb, rss_kb(daemon))
                time.sleep(0.02)
            assert daemon.metric("groupkeeper_buffered_bytes") <= 4 * BUDGET_BYTES
            assert most_kb - before_kb < 6 * BUDGET_BYTES // 1024, "more than is counted"
            for peer in peers:
                peer.socket.close()
            for _ in range(600):
                if rss_kb(daemon) - before_kb < 4 * MOST_GROWTH_KB:
                    return
                time.sleep(0.05)
            raise AssertionError(f"{rss_kb(daemon) - before_kb} KB more than before")
    finally:
        for peer in peers:
            peer.socket.close()
        daemon.stop()


def commit_metadata(client: RawClient, partitions: int) -> None:
    """Commit 4 KB of metadata to each partition, 200 at a time."""
    for first in range(0, partitions, 200):
        rows = [
            {
                "partition_index": partition,
                "committed_offset": 1,
                "committed_leader_epoch": -1,
                "committed_metadata": "m" * 4_000,
            }
            for partition in range(first, first + 200)
        ]
        client.call(
            "offset_commit",
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "orders", "partitions": rows}],
        )


def heartbeat(client: RawClient) -> None:
    reply = client.call("heartbeat", 4, group_id="g", generation_id=1, member_id="m")
    assert reply["error_code"] == 25


def ask_in_every_version(client: RawClient) -> int:
    """Ask for all topics; returns the bytes of the answers, which it does not decode."""
    size = 0
    with client.socket.makefile("rb") as replies:
        for version in range(1, 13):
            client.send("metadata", version, topics=None)
            (length,) = struct.unpack(">i", replies.read(4))
            size += len(replies.read(length))
    return size


def rss_kb(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    (row,) = [row for row in status.splitlines() if row.startswith("VmRSS")]
    return int(row.split()[1])
