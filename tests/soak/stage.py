"""The soak itself: what is done at which moment, and what everyone is told of it."""

from __future__ import annotations

import heapq
import itertools
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.helpers.daemon.servers import ForgetfulDaemon
from tests.soak import greedy
from tests.soak.cast import PARTITIONS, TOPIC, Cast, Host
from tests.soak.faults import (
    Fault,
    MovedDatabase,
    Volume,
    append_timeout_ms,
    foreign_writer,
    pace,
    plan,
)
from tests.soak.hostile import BUDGET_BYTES, SLACK_MB, HostilePeers
from tests.soak.judge import given_up, hoarded, lost_offsets, unrest
from tests.soak.ledger import Key, Ledger, now_ms
from tests.soak.observer import Observer
from tests.soak.report import Screen, counted
from tests.soak.second_name import SecondName

SETTLE_LIMIT_S = 180
REST_LIMIT_S = 240
"""A consumer that the last outage left dead is replaced after 150 s (``STUCK_S``); then sessions
end, and a rebalance waits for 60 s for members that do not come.
"""
SEAL_EVERY_MS = 20_000
FELT_LIMIT_S = 20
"""A fault that nobody has felt for so long is ended, and found."""
LOOK_EVERY_S, TELL_EVERY_S, FETCH_EVERY_S = 3.0, 10.0, 7.0


class Stage:
    """One run. ``findings`` is what was found while it ran."""

    def __init__(
        self, directory: Path, seconds: float, groups: int, members: int, screen: Screen
    ) -> None:
        self.screen = screen
        self.seconds = seconds
        self.groups, self.members = groups, members
        self.volume = Volume(directory / "volume")
        self.database = self.volume.path / "groupkeeper.db"
        self.moved = MovedDatabase(self.database)
        self.second = SecondName(self.database, directory / "second-daemon")
        self.daemon = ForgetfulDaemon(
            directory / "daemon",
            storage_url=f"sqlite:///{self.database}",
            topics={TOPIC: PARTITIONS, greedy.TOPIC: greedy.PARTITIONS},
            settings={
                "group.max_groups": groups + 1 + greedy.SPARE_GROUPS,
                "storage.max_group_bytes": greedy.MAX_GROUP_BYTES,
                "storage.append_timeout_ms": append_timeout_ms(seconds),
                # on the disk that is full now and then, and often enough to meet every fault
                "log.dir": str(self.volume.path / "log"),
                "log.segment_ms": SEAL_EVERY_MS,
                "kafka.max_buffered_bytes": BUDGET_BYTES,
            },
        )
        self.ledger = Ledger()
        self.cast = Cast(directory / "clients", groups, members, pace(seconds), self.ledger)
        self.observer = Observer(self.daemon, self.database, groups)
        self.findings: list[str] = []
        self.ended_ms = 0
        """When the clients were told to end."""
        self.felt: set[str] = set()
        """Faults that had an effect."""
        self.done: dict[str, int] = {}
        """How often each fault was done."""
        self.fetches = 0
        self._held = ExitStack()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._launched_s: float | None = None
        """When the life began that is not ready yet."""
        self._quiet = 0
        """Faults that last, during which nothing is asked of the daemon."""
        self._stopped = False
        self._is_to_end = False
        """True if the daemon has to end by itself."""
        self._victims = itertools.cycle(self.cast.hosts)
        self._told_commits, self._told_s = 0, time.monotonic()

    # --- the course of it -------------------------------------------------------------------------

    def settle(self) -> None:
        """Start everyone and wait until all groups are Stable with all their members."""
        self.daemon.start()
        self.cast.common = {
            "port": self.daemon.port,
            "topic": TOPIC,
            "partitions": PARTITIONS,
        }
        self.cast.start()
        self.greedy = greedy.Greedy(self.daemon.port, self.cast.directory, self.ledger)
        give_up_s = time.monotonic() + SETTLE_LIMIT_S
        while True:
            self._look()
            if (self.observer.members, self.observer.stable) == (self.members, self.groups):
                self._tell()
                return
            self._hosts_live()
            if time.monotonic() > give_up_s:
                self.findings.append(f"not all members had joined after {SETTLE_LIMIT_S} s")
                return
            if time.monotonic() > self._told_s + TELL_EVERY_S:
                self._tell()
            time.sleep(1)

    def play(self) -> None:
        """Do all faults in their time; while the daemon or its database is not back, they wait."""
        begin_s = self.screen.began_s = self._told_s = time.monotonic()
        faults = deque(plan(self.seconds))
        for every_s, what in (
            (LOOK_EVERY_S, self._look),
            (TELL_EVERY_S, self._tell),
            (FETCH_EVERY_S, self._fetch),
        ):
            self._repeat(begin_s + every_s, every_s, what)
        while faults or time.monotonic() < begin_s + self.seconds:
            now_s = time.monotonic()
            if faults and now_s >= begin_s + faults[0].at_s:
                if self._may_begin():
                    self._do(faults.popleft())
                else:
                    begin_s = now_s - faults[0].at_s
            self._go_on()

    def _may_begin(self) -> bool:
        """Return True if the next fault may begin. A daemon that is killed could not start while
        its database is away.
        """
        return self._launched_s is None and not self._is_to_end and not self.moved.is_away()

    def rest(self) -> None:
        """Do nothing bad any more, until all groups are Stable with all living members."""
        give_up_s = time.monotonic() + REST_LIMIT_S
        while restless := self._unrest():
            if time.monotonic() > give_up_s:
                self._found(f"{restless[0]}, after {REST_LIMIT_S} s")
                return
            next_look_s = time.monotonic() + 1
            while time.monotonic() < next_look_s:
                self._go_on()

    def finish(self) -> dict[Key, int]:
        """End the clients, and fetch every offset for the last time."""
        self._held.close()
        self.volume.make_room()
        self.moved.put_back()
        self.daemon.signal(signal.SIGCONT)
        self.ended_ms = now_ms()
        self.cast.stop()
        self.daemon.wait_ready()
        self.greedy.go()
        self.findings += self.greedy.findings
        self._look()
        self.ledger.read()
        give_up_s = time.monotonic() + 60
        while (found := self.observer.fetch()) is None:
            assert time.monotonic() < give_up_s, "OffsetFetch is not answered"
            time.sleep(0.2)
        self.observer.life_is_over()
        code = self.daemon.terminate()
        if code != 0:
            self.findings.append(f"told to stop, the daemon exited with {code}")
        if "fill bounds" in self.felt and greedy.parts_of_group(self.database) < 2:
            self.findings.append("no group was folded in parts")
        return found

    def keep(self, directory: Path) -> None:
        """Copy the store out of what will be unmounted."""
        shutil.copytree(
            self.volume.path, directory / "store", ignore=shutil.ignore_patterns("ballast")
        )

    def clear(self) -> None:
        """Leave nothing running and nothing mounted."""
        self.cast.kill()
        self.second.daemon.stop()
        self._held.close()
        self.daemon.stop()
        self.volume.unmount()

    # --- faults -----------------------------------------------------------------------------------

    def _do(self, fault: Fault) -> None:  # noqa: C901 - one case a fault
        self.done[fault.name] = self.done.get(fault.name, 0) + 1
        match fault.name:
            case "kill daemon":
                self._kill_daemon()
            case "stop daemon":
                self._stop_daemon(fault.for_s)
            case "restart on full disk":
                self._restart_on_full_disk(fault.for_s)
            case "fill disk":
                self._fill_disk(fault.for_s)
            case "second name":
                self._second_name()
            case "move database":
                self._move_database(fault.for_s)
            case "hostile peers":
                self._hostile_peers(fault.for_s)
            case "hold database":
                self._hold_database(fault.for_s)
            case "fill bounds":
                self._fill_bounds()
            case "fail sync":
                self._fail_sync()
            case "kill clients":
                self._kill_clients()
            case "stop clients":
                self._stop_clients(fault.for_s)
            case name:
                raise AssertionError(name)

    def _kill_daemon(self) -> None:
        self.screen.fault(f"kill -9 the daemon ({self.observer.rss_mb:.0f} MB)")
        self.daemon.kill()
        self.felt.add("kill daemon")
        self._begin_life()

    def _stop_cleanly(self) -> None:
        code = self.daemon.terminate()
        if code != 0:
            self._found(f"told to stop, the daemon exited with {code}")

    def _begin_life(self) -> None:
        self.observer.life_is_over()
        self.daemon.launch()
        self._launched_s = time.monotonic()

    def _stop_daemon(self, for_s: float) -> None:
        self.screen.fault(f"SIGSTOP to the daemon for {for_s:.0f} s")
        self.daemon.signal(signal.SIGSTOP)
        self._stopped = True
        self.felt.add("stop daemon")

        def go_on() -> None:
            self.daemon.signal(signal.SIGCONT)
            self._stopped = False
            self.screen.better("SIGCONT: the daemon goes on")

        self._for_a_while(for_s, go_on)

    def _fill_disk(self, for_s: float) -> None:
        self.screen.fault(f"the disk is full for {for_s:.0f} s")
        logged = len(self.observer.log_lines())
        self.volume.fill()

        def is_felt() -> bool:
            return self.observer.store_was_away(logged)

        def make_room() -> None:
            if is_felt():
                self.felt.add("fill disk")
            self.volume.make_room()
            self.screen.better("the disk has room again")

        self._for_a_while(for_s, make_room, is_felt)

    def _restart_on_full_disk(self, for_s: float) -> None:
        self.screen.fault(f"a clean stop, and a start on a disk that is full for {for_s:.0f} s")
        self._stop_cleanly()
        self.volume.fill()
        logged = len(self.observer.log_lines())
        self._begin_life()

        def waits() -> bool:
            return any(e.get("event") == "open_failed" for e in self.observer.log_lines()[logged:])

        def make_room() -> None:
            if waits():
                self.felt.add("restart on full disk")
            self.volume.make_room()
            self.screen.better("the disk has room again")

        self._for_a_while(for_s, make_room, waits)

    def _second_name(self) -> None:
        """Nothing else happens meanwhile: beside the link, the daemon itself could not start."""
        if not self._can_ask():  # its lock would be free, or the disk full
            self._after(0.5, self._second_name)
            return
        self.screen.fault("somebody starts a second daemon on a hard link of the database")
        finding = self.second.come()
        if finding is not None:
            self._found(finding)
        self.felt.add("second name")
        self.screen.better("the second daemon was refused, and the link is gone")

    def _move_database(self, for_s: float) -> None:
        self.screen.fault(f"somebody moves the database, for {for_s:.0f} s")
        self.moved.move()

        def has_noticed() -> bool:
            return "while this process used it" in self.daemon.get("/readyz")[1]

        def put_back() -> None:
            if has_noticed():
                self.felt.add("move database")
            self.moved.put_back()
            self.screen.better("the database is back, and the daemon started again")
            self._stop_cleanly()
            self._begin_life()

        self._for_a_while(for_s, put_back, has_noticed)

    def _hostile_peers(self, for_s: float) -> None:
        """Everybody else is asked as ever meanwhile, health too."""
        self.screen.fault(f"hundreds of silent and greedy peers for {for_s:.0f} s")
        self.observer.look()
        before_mb = worst_mb = self.observer.rss_mb
        peers = HostilePeers(self.daemon.port, int(self.daemon.http.rpartition(":")[2]))
        peers.come()
        end_s = time.monotonic() + for_s

        def watch() -> None:
            nonlocal worst_mb
            worst_mb = max(worst_mb, self.observer.memory_mb())
            for path in ("/healthz", "/readyz"):
                status = self.daemon.get(path)[0]
                if status not in (0, 200):
                    self._found(f"{path} is {status} while hostile peers are connected")
            if time.monotonic() < end_s:
                self._after(0.5, watch)
                return
            page = self.daemon.get("/metrics")[1]
            if 'groupkeeper_http_refused_total{reason="too_many_connections"}' in page:
                self.felt.add("hostile peers")
            peers.go()
            for finding in hoarded(before_mb, worst_mb, BUDGET_BYTES, SLACK_MB):
                self._found(finding)
            self.screen.better(f"the hostile peers are gone; {worst_mb:.0f} MB at most")

        self._after(0.5, watch)

    def _fill_bounds(self) -> None:
        self.screen.fault("a client takes all the room for offsets of a group, and for groups")
        give_up_s = time.monotonic() + FELT_LIMIT_S
        self.greedy.come()

        def look() -> None:
            if self.greedy.is_refused():
                self.felt.add("fill bounds")
                self.screen.better("the greedy client was refused both")
            elif time.monotonic() < give_up_s:
                self._after(0.5, look)

        self._after(0.5, look)

    def _hold_database(self, for_s: float) -> None:
        self.screen.fault(f"BEGIN IMMEDIATE by somebody else, for {for_s:.0f} s")
        logged = len(self.observer.log_lines())
        self._held.enter_context(foreign_writer(self.database))

        def let_go() -> None:
            if self.observer.store_was_away(logged):
                self.felt.add("hold database")
            self._held.close()
            self.screen.better("the database is let go")

        self._for_a_while(for_s, let_go)

    def _fail_sync(self) -> None:
        """The daemon has to end, and the kernel forgets the pages that were not written."""
        self.screen.fault("the disk fails to sync, once")
        logged = len(self.observer.log_lines())
        self.daemon.fail_sync()
        self._is_to_end = True
        self._quiet += 1
        give_up_s = time.monotonic() + FELT_LIMIT_S
        process = self.daemon.process
        assert process is not None

        def look() -> None:
            if process.poll() is None and time.monotonic() < give_up_s:
                self._after(0.1, look)
                return
            self._is_to_end = False
            self._quiet -= 1
            if process.poll() is None:  # told at the end as a fault without effect
                self.daemon.forgive()
                return
            for finding in given_up(process.returncode, self.observer.log_lines()[logged:]):
                self._found(finding)
            self.felt.add("fail sync")
            self.screen.better("the daemon has given its store up, and is started again")
            self._begin_life()

        self._after(0.1, look)

    def _kill_clients(self) -> None:
        host = next(self._victims)
        self.screen.fault(f"kill -9 {host.name}: {len(host.roles)} members; others take their part")
        host.kill()
        host.start()
        self.felt.add("kill clients")

    def _stop_clients(self, for_s: float) -> None:
        host = next(self._victims)
        fate = "are to stay" if for_s * 1000 < host.session_ms / 2 else "will be evicted"
        self.screen.fault(
            f"SIGSTOP to {host.name} for {for_s:.0f} s: {len(host.roles)} members, who {fate}"
        )
        host.stop()
        self.felt.add("stop clients")

        def go_on() -> None:
            host.go_on()
            self.screen.better(f"SIGCONT: {host.name} goes on")

        self._after(for_s, go_on)

    # --- between faults ---------------------------------------------------------------------------

    def _go_on(self) -> None:
        """What is due between two faults, and a moment."""
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            heapq.heappop(self._due)[2]()
        self._daemon_lives()
        self._hosts_live()
        time.sleep(0.05)

    def _unrest(self) -> list[str]:
        if not self._can_ask():
            return ["no rest after the last fault: the daemon is not back"]
        self._look()
        seen = self.observer
        return unrest(seen.stable, self.groups, seen.members, self.members)

    def _daemon_lives(self) -> None:
        process = self.daemon.process
        assert process is not None
        if process.poll() is not None:
            if self._is_to_end:
                return
            self._found(f"the daemon ended by itself, with {process.returncode}")
            time.sleep(1)
            self._begin_life()
        elif self._launched_s is None or self._stopped:
            return
        elif self.daemon.get("/readyz")[0] == 200:
            took_s = time.monotonic() - self._launched_s
            self._launched_s = None
            self.screen.better(f"the daemon is ready again, after {took_s:.1f} s")

    def _hosts_live(self) -> None:
        for host in self.cast.hosts:
            if host.has_ended():
                self._found(f"{host.name} ended by itself: see clients.log")
                host.start()

    def _look(self) -> None:
        self.ledger.read()
        if self._can_ask():
            self.observer.look()

    def _tell(self) -> None:
        seen, now_s = self.observer, time.monotonic()
        if self._can_ask():
            seen.read_events()
        rate = (self.ledger.commits - self._told_commits) / max(0.001, now_s - self._told_s)
        self._told_commits, self._told_s = self.ledger.commits, now_s
        self.screen.say(
            f"{rate:4.0f} commits/s | {seen.members:,} members, {seen.stable} groups Stable | "
            f"{seen.rss_mb:.0f} MB | rebalances: {counted(seen.rebalances)} | "
            f"evicted: {counted(seen.evicted)}"
        )

    def _fetch(self) -> None:
        """Nothing acknowledged may be above what OffsetFetch tells, at any time."""
        if not self._can_ask():
            return
        self.ledger.read()
        before = dict(self.ledger.largest)
        found = self.observer.fetch()
        if found is not None:
            self.fetches += 1
            for finding in lost_offsets(before, found):
                self._found(finding)

    def _can_ask(self) -> bool:
        return self._launched_s is None and not self._quiet

    def _found(self, finding: str) -> None:
        self.findings.append(finding)
        self.screen.finding(finding)

    # --- time -------------------------------------------------------------------------------------

    def _at(self, at_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), what))

    def _after(self, for_s: float, what: Callable[[], None]) -> None:
        self._at(time.monotonic() + for_s, what)

    def _for_a_while(
        self, for_s: float, end: Callable[[], None], is_felt: Callable[[], bool] = lambda: True
    ) -> None:
        """Ask nothing of the daemon until it is over, and felt, for a busy machine is slow."""
        self._quiet += 1
        give_up_s = time.monotonic() + for_s + FELT_LIMIT_S

        def over() -> None:
            if not is_felt() and time.monotonic() < give_up_s:
                self._after(0.5, over)
                return
            end()
            self._quiet -= 1

        self._after(for_s, over)

    def _repeat(self, at_s: float, every_s: float, what: Callable[[], None]) -> None:
        def again() -> None:
            what()
            self._repeat(at_s + every_s, every_s, what)

        self._at(at_s, again)


def describe(hosts: list[Host]) -> str:
    """``400 raw, 300 aiokafka``."""
    counts: dict[str, int] = {}
    for host in hosts:
        counts[host.kind] = counts.get(host.kind, 0) + len(host.roles)
    return counted(counts)
