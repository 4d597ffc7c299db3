"""`make demo`: what groupkeeper is for, in half a minute, with real consumers and real kills.

    python examples/demo.py [SECONDS]      how long it may take at the most; 55

It starts a daemon in a temporary directory, and three consumers as processes. At the end it stops
all of them. It exits with 0 only if every fact that it prints was true.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GROUP, TOPIC, PARTITIONS = "billing", "orders", 12
NAMES = ("ann", "bob", "cat")
COLOURS = {"ann": "36", "bob": "33", "cat": "35"}
PATIENCE_S = 55
"""The time limit of the demo, which ends within a minute in any case."""
STARTED = time.monotonic()

CONFIG = """\
[kafka]
listen = "127.0.0.1:{kafka}"
[http]
listen = "127.0.0.1:{http}"
[storage]
append_timeout_ms = 1000
[group]
min_session_timeout_ms = 2000       # so that a death is noticed while you watch
initial_rebalance_delay_ms = 0
[logging]
format = "json"
[[static.topics]]
name = "{topic}"
partitions = {partitions}
"""


class Screen:
    """Prints what happens, with colours on a terminal unless NO_COLOR is set."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.coloured = terminal and not os.environ.get("NO_COLOR")
        try:
            "■·✓✗".encode(sys.stdout.encoding or "ascii")
            self.full, self.empty, self.yes, self.no = "■", "·", "✓", "✗"
        except UnicodeEncodeError:
            self.full, self.empty, self.yes, self.no = "#", ".", "ok", "FAILED"

    def colour(self, text: str, code: str) -> str:
        """Return the text in a colour, if colours are on."""
        return f"\033[{code}m{text}\033[0m" if self.coloured else text

    def name(self, name: str) -> str:
        """Return a consumer's name in its colour."""
        return self.colour(name, COLOURS[name])

    def heading(self, text: str) -> None:
        """Print the heading of a chapter."""
        print("\n" + self.colour(text, "1"), flush=True)

    def say(self, text: str) -> None:
        """Print what just happened, and when."""
        at = self.colour(f"{time.monotonic() - STARTED:5.1f} s", "2")
        print(f"  {at}  {text}", flush=True)

    def show(self, owners: dict[str, set[int]]) -> None:
        """Print who owns which partition."""
        for name, owned in owners.items():
            strip = " ".join(self.full if n in owned else self.empty for n in range(PARTITIONS))
            print(f"           {self.colour(f'{name}  {strip}', COLOURS[name])}", flush=True)


class Consumer:
    """One consumer process, and the events that it reported."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.positions: dict[int, int] = {}
        """The offset from which it reads each partition that it owns."""
        self.acknowledged: dict[int, int] = {}
        """The last offset of each partition that the coordinator confirmed to it."""
        self.commits = self.failures = self.assignments = 0
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "examples/demo_consumer.py", name, bootstrap, GROUP, TOPIC],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def owned(self) -> set[int]:
        """The partitions that it reports as its own."""
        return set(self.positions)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            fact: dict[str, Any] = json.loads(line)
            if fact["event"] == "assigned":
                self.assignments += 1
                self.positions = {int(p): at for p, at in fact["positions"].items()}
            elif fact["event"] == "revoked":
                self.positions = {}
            elif fact["event"] == "committed":
                self.commits += 1
                self.acknowledged |= {int(p): at for p, at in fact["offsets"].items()}
            else:
                self.failures += 1

    def end(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Daemon:
    """The daemon, in its own directory."""

    def __init__(self, directory: Path) -> None:
        """Write its settings. ``start`` starts it."""
        self.directory = directory
        self.kafka, self.http = free_ports(2)
        self.bootstrap = f"127.0.0.1:{self.kafka}"
        self.process: subprocess.Popen[bytes] | None = None
        (directory / "demo.toml").write_text(
            CONFIG.format(kafka=self.kafka, http=self.http, topic=TOPIC, partitions=PARTITIONS)
        )

    def start(self) -> None:
        """Start it, and wait until it serves groups."""
        with (self.directory / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "groupkeeper", "serve", "--config", "demo.toml"],
                cwd=self.directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: self.get("/readyz") == "ready\n", "the daemon to be ready")

    def get(self, path: str) -> str:
        """Return a page of its HTTP port; "" while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return ""

    def rebalances(self) -> int:
        """Return how many join phases have begun since its start."""
        pattern = re.compile(r"^groupkeeper_rebalances_total\{.*\} (\S+)$", re.MULTILINE)
        return sum(int(float(count)) for count in pattern.findall(self.get("/metrics")))

    def describe(self, *options: str) -> str:
        """Return the output of `groupkeeper group describe`."""
        command = ["-m", "groupkeeper", "group", "describe", GROUP, "--server", self.bootstrap]
        done = subprocess.run(
            [sys.executable, *command, *options],
            cwd=self.directory,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def committed(self) -> dict[int, int]:
        """Return the committed offsets, fetched over the Kafka protocol."""
        offsets = json.loads(self.describe("--output", "json"))["offsets"]
        return {o["partition"]: o["committed"] for o in offsets if o["committed"] is not None}

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Demo:
    """The chapters of the demo, and whether each fact was true."""

    def __init__(self, directory: Path) -> None:
        self.screen = Screen()
        self.daemon = Daemon(directory)
        self.consumers: dict[str, Consumer] = {}
        self.facts: list[tuple[str, bool]] = []

    def run(self) -> bool:
        """Run all chapters. Return True if every fact was true."""
        self.screen.heading("groupkeeper in half a minute: a group outlives its parts")
        self.share()
        self.lose_a_consumer()
        self.lose_the_daemon()
        return self.sum_up()

    def share(self) -> None:
        """Run chapter one: the consumers share the partitions."""
        screen, daemon = self.screen, self.daemon
        screen.heading(f"1. Three consumers share the {PARTITIONS} partitions of {TOPIC}")
        screen.say("a daemon starts ...")
        daemon.start()
        screen.say(f"... and listens on {daemon.bootstrap}; its store is one SQLite file")
        self.consumers = {name: Consumer(name, daemon.bootstrap) for name in NAMES}
        screen.say(f"consumers {', '.join(map(screen.name, NAMES))} start, group {GROUP!r}")
        wait_for(self.is_shared, "the consumers to share the partitions")
        screen.say("they joined, one of them computed the assignment, all have it:")
        self.show()
        self.note(f"3 consumers owned {PARTITIONS} partitions, each exactly once", self.is_shared())
        screen.say("groupkeeper stores no messages: they pretend to read, and commit")
        self.let_commit(4)

    def lose_a_consumer(self) -> None:
        """Run chapter two: a consumer is killed."""
        screen = self.screen
        screen.heading("2. One of them dies, the others take over")
        bob = self.consumers.pop("bob")
        held = bob.owned
        bob.end()
        screen.say(f"kill -9 {screen.name('bob')}: no goodbye, so its session has to run out (3 s)")
        wait_for(self.is_shared, "the others to take over")
        screen.say(f"{screen.name('bob')} was evicted, the group rebalanced:")
        self.show()
        self.note(f"2 consumers owned {PARTITIONS} partitions after the kill", self.is_shared())
        resumed = {n: c for c in self.consumers.values() for n in held & c.owned}
        for number, heir in sorted(resumed.items()):
            at = f"bob had committed {bob.acknowledged[number]}, "
            at += f"{screen.name(heir.name)} goes on at {heir.positions[number]}"
            screen.say(f"  {TOPIC} {number}: {at}")
        self.note(
            "what bob had committed is where the others went on",
            all(resumed[n].positions[n] >= bob.acknowledged[n] for n in held),
        )
        self.let_commit(4)

    def lose_the_daemon(self) -> None:
        """Run chapter three: the daemon is killed."""
        screen, daemon = self.screen, self.daemon
        screen.heading("3. The daemon dies in the middle of the commits")
        assignments = self.assignments()
        daemon.kill()
        screen.say("kill -9 the daemon: no flush, no goodbye")
        settle(lambda: sum(c.failures for c in self.consumers.values()))
        acknowledged = {
            number: consumer.acknowledged[number]
            for consumer in self.consumers.values()
            for number in consumer.owned
        }
        screen.say("the consumers see their commits fail, keep what they own, and try again")
        daemon.start()
        screen.say("the daemon is back: it loaded its store, then it listened")
        found = daemon.committed()
        kept = [n for n, at in acknowledged.items() if found.get(n, -1) >= at]
        screen.say(f"offsets acknowledged before the kill: {len(acknowledged)}, kept: {len(kept)}")
        self.note(
            "every offset that was acknowledged before the kill was there after it",
            len(kept) == len(acknowledged) == PARTITIONS,
        )
        self.let_commit(4)
        rebalances = daemon.rebalances()
        screen.say("same members, same generation, same partitions, growing offsets:")
        self.show()
        self.note(
            "the group went on without a rebalance",
            rebalances == 0 and self.assignments() == assignments and self.is_shared(),
        )

    def sum_up(self) -> bool:
        """Print the summary. Return True if every fact was true."""
        screen = self.screen
        screen.heading(f"4. groupkeeper group describe {GROUP}")
        width = shutil.get_terminal_size().columns
        for line in self.daemon.describe().splitlines():
            print(f"  {line}"[:width].rstrip())
        screen.heading("5. What you saw")
        for fact, held in self.facts:
            mark = screen.colour(screen.yes, "32") if held else screen.colour(screen.no, "31")
            print(f"  {mark} {fact}")
        print("\nTry it yourself: `make run`, and docs/start/quickstart.md.", flush=True)
        return all(held for _, held in self.facts)

    # --- steps ------------------------------------------------------------------------------------

    def is_shared(self) -> bool:
        """Return True if each partition has one owner and each consumer owns a partition."""
        parts = [consumer.owned for consumer in self.consumers.values()]
        return all(parts) and sorted(n for part in parts for n in part) == list(range(PARTITIONS))

    def assignments(self) -> int:
        """Return how many assignments the consumers have received."""
        return sum(consumer.assignments for consumer in self.consumers.values())

    def show(self) -> None:
        """Print who owns which partition now."""
        self.screen.show({name: consumer.owned for name, consumer in self.consumers.items()})

    def let_commit(self, rounds: int) -> None:
        """Wait until each consumer has committed ``rounds`` more times."""
        before = {name: c.commits for name, c in self.consumers.items()}
        wait_for(
            lambda: all(c.commits >= before[name] + rounds for name, c in self.consumers.items()),
            "commits",
        )
        total = sum(sum(c.acknowledged[n] for n in c.owned) for c in self.consumers.values())
        self.screen.say(
            f"each committed {rounds} times more, all of it on disk; the offsets add up to {total}"
        )

    def note(self, fact: str, held: bool) -> None:
        """Record a fact for the summary."""
        self.facts.append((fact, held))

    def end(self) -> None:
        """Stop all processes."""
        for consumer in self.consumers.values():
            consumer.end()
        self.daemon.kill()


def environment() -> dict[str, str]:
    """Return our environment without settings for another daemon of the user."""
    kept = {name: v for name, v in os.environ.items() if not name.startswith("GROUPKEEPER_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def free_ports(count: int) -> list[int]:
    """Return free loopback ports outside the range of outgoing connections."""
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.randrange(20_000, 32_000)
            try:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
        return ports


def wait_for(happened: Callable[[], bool], what: str) -> None:
    """Wait for a condition, with a time limit."""
    patience_s = float(sys.argv[1]) if len(sys.argv) > 1 else PATIENCE_S
    while not happened():
        if time.monotonic() > STARTED + patience_s:
            raise TimeoutError(f"after {patience_s:g} s it still waits for {what}")
        time.sleep(0.05)


def settle(count: Callable[[], int]) -> None:
    """Wait until a number has grown, and then one more second."""
    before = count()
    wait_for(lambda: count() > before, "the consumers to notice")
    time.sleep(1)


def main() -> int:
    """Run the demo. Return 0 if every fact was true."""
    with tempfile.TemporaryDirectory(prefix="groupkeeper-demo-") as directory:
        demo = Demo(Path(directory))
        try:
            return 0 if demo.run() else 1
        except TimeoutError as error:
            print(f"\nThe demo did not come to its end: {error}", file=sys.stderr)
            print((Path(directory) / "daemon.log").read_text(), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            demo.end()


if __name__ == "__main__":
    sys.exit(main())
