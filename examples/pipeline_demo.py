"""`make pipeline-demo`: consumers misbehave, and the pipeline tells who did what.

    python -m examples.pipeline_demo [SECONDS] [FOLDER]

It starts a daemon and real consumers for SECONDS (150). The consumers work, but they also rewind,
stop sending heartbeats, and join in large numbers. Then it stops the daemon, and
``groupkeeper pipeline`` makes tables and reports from the log. It exits with 0 only if all of this
is in the reports. All files stay in FOLDER (var/pipeline-demo) until the next demo there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from examples.demo import Screen, environment, free_ports, wait_for
from groupkeeper import read_events

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 150.0
CONFIG = """\
[kafka]
listen = "127.0.0.1:{kafka}"
[http]
listen = "127.0.0.1:{http}"
[storage]
append_timeout_ms = 1000
[log]
segment_ms = 5000                   # so that you need not wait for a segment
end_offset_interval_ms = 5000
[group]
min_session_timeout_ms = 2000       # so that a death is noticed while you watch
initial_rebalance_delay_ms = 0
[logging]
format = "json"
[[static.topics]]
name = "orders"
partitions = 6
[[static.topics]]
name = "clicks"
partitions = 3
"""


class Consumer:
    """A consumer process."""

    def __init__(self, bootstrap: str, name: str, group: str, topic: str, rate: float) -> None:
        self.name = name
        command = ["-m", "examples.pipeline_demo_consumer", name, bootstrap, group, topic]
        self.process = subprocess.Popen(
            [sys.executable, *command, str(rate)],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def tell(self, command: str) -> None:
        """Send it a command."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Make it leave the group, or kill it."""
        self.tell("quit")
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Life:
    """The daemon and its consumers."""

    def __init__(self, folder: Path, screen: Screen, seconds: float) -> None:
        """Prepare an empty folder."""
        emptied(folder)
        self.folder, self.screen, self.seconds = folder, screen, seconds
        kafka, http = free_ports(2)
        self.bootstrap = f"127.0.0.1:{kafka}"
        self.http = f"http://127.0.0.1:{http}"
        (folder / "demo.toml").write_text(CONFIG.format(kafka=kafka, http=http))
        self.consumers: list[Consumer] = []

    def consumer(self, name: str, group: str, topic: str, rate: float) -> Consumer:
        """Start a consumer."""
        consumer = Consumer(self.bootstrap, name, group, topic, rate)
        self.consumers.append(consumer)
        return consumer

    @contextlib.contextmanager
    def daemon(self) -> Iterator[None]:
        """Run the daemon. Its clean stop seals all events."""
        with (self.folder / "daemon.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "groupkeeper", "serve", "--config", "demo.toml"],
                cwd=self.folder,
                env=environment(),
                stdout=log,
                stderr=log,
            )
        try:
            wait_for(lambda: _answers(self.http + "/readyz"), "the daemon to be ready")
            yield
        finally:
            for consumer in self.consumers:
                consumer.end()
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def work(self, share: float, what: str) -> None:
        """Wait for a share of the time, and show the progress."""
        until = time.monotonic() + self.seconds * share
        self.screen.say(what)
        while (left := until - time.monotonic()) > 0:
            self._bar(1 - left / (self.seconds * share))
            time.sleep(min(left, 0.5))
        self._bar(None)

    def _bar(self, done: float | None) -> None:
        if not self.screen.coloured:
            return
        if done is None:
            sys.stdout.write("\r\033[K")
        else:
            filled = round(done * 30)
            bar = self.screen.full * filled + self.screen.empty * (30 - filled)
            sys.stdout.write(f"\r           {self.screen.colour(bar, '2')}")
        sys.stdout.flush()


def emptied(folder: Path) -> None:
    """Create the folder. Delete the files of an earlier demo."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "demo.toml").exists():
        raise SystemExit(f"{folder} holds something else: choose a folder that is not there yet")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _answers(url: str) -> bool:
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def misbehave(life: Life) -> None:
    """Run the consumers and their mistakes."""
    screen = life.screen
    screen.heading("Three groups at work")
    ann = life.consumer("billing-ann", "billing", "orders", 400)
    bob = life.consumer("billing-bob", "billing", "orders", 400)
    life.consumer("search-1", "search", "orders", 250)
    life.consumer("stats-1", "stats", "clicks", 120)
    life.work(0.3, "billing keeps up, search reads the same topic and is slower")
    screen.heading("A bad deploy")
    ann.tell("rewind 5000")
    life.work(0.2, "billing-ann goes back by 5,000 messages and reads them again")
    screen.heading("A zombie")
    _zombie(life, bob)
    screen.heading("A storm of joins")
    screen.say("six workers join search one after another, and leave again")
    crowd = []
    for number in range(2, 8):
        crowd.append(life.consumer(f"search-{number}", "search", "orders", 250))
        time.sleep(0.7)
    life.work(0.1, "everyone shares six partitions")
    for consumer in crowd:
        consumer.end()
    screen.heading("An administrator")
    life.work(0.1, "nightly has no members; its offsets are set from outside, twice")
    _reset(life.bootstrap, 1000)
    _reset(life.bootstrap, 0)
    life.work(0.1, "and the work goes on")


def _zombie(life: Life, bob: Consumer) -> None:
    """Suspend a member until its session has expired, and resume it.

    Its library may notice this before it commits. Then no commit is refused, so it is repeated.
    """
    for attempt in range(4):
        os.kill(bob.process.pid, signal.SIGSTOP)
        life.work(0.1, "billing-bob is stopped; its session runs out, its partitions go to ann")
        os.kill(bob.process.pid, signal.SIGCONT)
        life.work(0.1, "billing-bob wakes up and commits as if nothing had been")
        events = read_events(life.folder / "groupkeeper.db")
        if any(event["kind"] == "commit_rejected" for event in events):
            life.screen.say("it is refused")
            return
        life.screen.say(f"this time it noticed; once more ({attempt + 1})")


def _reset(bootstrap: str, offset: int) -> None:
    admin = AdminClient(
        # librdkafka tells of its own queue when a client ends: nobody needs to read that
        {"bootstrap.servers": bootstrap, "client.id": "ops-laptop", "log_level": 4}
    )
    offsets = [TopicPartition("clicks", number, offset) for number in range(3)]
    (done,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("nightly", offsets)]
    ).values()
    done.result(10)


def pipeline(life: Life, *command: str) -> None:
    """Run a command of ``groupkeeper pipeline``, and show its output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "groupkeeper", "pipeline", *command],
        cwd=life.folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    _relay(process.stderr, life.screen)
    if process.wait():
        raise SystemExit(f"groupkeeper pipeline {command[0]} failed with {process.returncode}")


def _relay(lines: IO[str], screen: Screen) -> None:
    for line in lines:
        if line.startswith("  "):  # the other lines are messages of the JVM
            screen.say(line.strip())


def check(folder: Path) -> list[str]:
    """Return what is missing in the reports."""

    def rows(name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((folder / f"{name}.json").read_text())
        return found

    audit = {(row["action"], row["group"]) for row in rows("audit")}
    rebalances = rows("rebalances")
    lag = {row["name"]: row["largest_lag"] for row in rows("lag") if row["largest_lag"]}
    wanted = {
        "the rewind of billing": ("rewind", "billing") in audit,
        "the refused commit of the zombie": ("rejected", "billing") in audit,
        "the reset of nightly": ("reset", "nightly") in audit,
        "the session that ran out": any(row["cause"] == "timeout" for row in rebalances),
        "the storm of joins": sum(row["group"] == "search" for row in rebalances) >= 6,
        "the lag of search": lag.get("search", 0) > 0,
    }
    return [what for what, is_there in wanted.items() if not is_there]


def main() -> int:
    """Run the demo. Return the exit code."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "var" / "pipeline-demo").resolve()
    screen = Screen()
    life = Life(folder, screen, seconds)
    with life.daemon():
        misbehave(life)
    screen.heading("The pipeline")
    tables = str(folder / "tables")
    pipeline(life, "run", "--log-dir", str(folder / "groupkeeper-log"), "--out", tables)
    screen.heading("The reports")
    pipeline(life, "report", "--tables", tables)
    reports = folder / "tables" / "reports"
    missing = check(reports)
    for what in missing:
        screen.say(f"{screen.no} not in the reports: {what}")
    if not missing:
        screen.say(f"{screen.yes} the rewind, the zombie, the reset, the storm: all there, named")
    print("\nLook at them in a browser:")
    for page in ("lag", "rebalances", "audit"):
        print(f"  file://{reports / page}.html")
    print(f"The tables they are made of, as Parquet: {tables}")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
