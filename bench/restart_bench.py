"""Measure the time from `kill -9` under load to the next acknowledged commit.

    python -m bench.restart_bench [kills] [busy loops]

This uses the real daemon on SQLite. Connections commit as fast as they are answered for some
seconds. Then the process is killed and started again at once, and a client retries a commit. The
time includes the start of an interpreter, the imports, the load of the unfolded rows, and the first
append. Busy loops use the processor during this, as other work on the machine would. Modules are
compiled to bytecode before, as in an installation.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.sealing_bench import commit_frame
from bench.start_bench import keep_bytecode
from tests.helpers.daemon.daemon import Daemon
from tests.helpers.wire.raw_client import RawClient, decode_response

KILLS = 20
CONNECTIONS = 8
LOAD_S = 4.0
ASK_EVERY_S = 0.005
GIVE_UP_S = 60.0
BURN = "while True: pass"


def load(port: int, number: int, stop: threading.Event, count: list[int]) -> None:
    """Commit until ``stop`` is set, or until the daemon has ended."""
    frame = commit_frame(f"group-{number}")
    try:
        with RawClient(port) as client:
            while not stop.is_set():
                _ask(client, frame)
                count[number] += 1
    except OSError:
        return


def committed(port: int) -> bool:
    """Return True if a commit over a new connection is acknowledged."""
    try:
        with RawClient(port) as client:
            _, reply = decode_response("offset_commit", 8, _ask(client, commit_frame("group-0")))
    except OSError:
        return False
    rows = [row for topic in reply["topics"] for row in topic["partitions"]]
    return bool(rows) and all(row["error_code"] == 0 for row in rows)


def _ask(client: RawClient, frame: bytes) -> bytes:
    client.socket.sendall(frame)
    return client.receive_frame()


def one_kill(daemon: Daemon, port: int) -> tuple[float, int]:
    """Commit, kill, start. Return the seconds to the next acknowledged commit, and the commits
    before the kill.
    """
    stop, count = threading.Event(), [0] * CONNECTIONS
    threads = [
        threading.Thread(target=load, args=(port, number, stop, count))
        for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(LOAD_S)
    began = time.monotonic()
    daemon.signal(signal.SIGKILL)
    assert daemon.process is not None
    daemon.process.wait()
    daemon.launch()
    stop.set()
    while not committed(port):
        assert time.monotonic() - began < GIVE_UP_S, daemon.log
        time.sleep(ASK_EVERY_S)
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    return took, sum(count)


def main() -> None:
    """Kill the daemon several times, and print each result and the worst."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    loops = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(loops)]
    # The sealing process of a killed daemon may still write bytecode here.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        keep_bytecode(str(Path(name) / "bytecode"))
        daemon = Daemon(Path(name), topics={"orders": 12})
        daemon.start()
        port = int(daemon.bootstrap.rpartition(":")[2])
        times = []
        try:
            for kill in range(1, kills + 1):
                took, commits = one_kill(daemon, port)
                times.append(took)
                print(f"{kill:3}  {took:6.3f} s  after {commits} commits", flush=True)
        finally:
            daemon.stop()
            for process in burning:
                process.kill()
                process.wait()
    print(
        f"{len(times)} kills beside {loops} busy loops: "
        f"median {statistics.median(times):.3f} s, worst {max(times):.3f} s"
    )


if __name__ == "__main__":
    main()
