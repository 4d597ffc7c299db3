"""Leases by lives among processes that are stopped, slow or cut off, over one store.

A virtual clock moves in steps. Each process beats and looks when it is due, unless it is stopped.
Its calls reach the store some time after they were sent, and the answers return later still.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.storage.leases.lives import LifeWatch, NodeLife, ReadTime, beat_interval_ms

TTL_MS = 400
END_MS = 4_000

Trouble = tuple[int, int]
"""From when, and for how long."""


class Store:
    """Keeps the counters. Each call is one transaction."""

    def __init__(self) -> None:
        self.lives: dict[str, NodeLife] = {}

    def beat(self, life_id: str) -> list[NodeLife] | None:
        """Return all lives; None if the own life has ended."""
        life = self.lives.get(life_id)
        if life is None:
            return None
        self.lives[life_id] = life._replace(counter=life.counter + 1)
        return [*self.lives.values()]

    def end(self, life: NodeLife) -> bool:
        if self.lives.get(life.life_id) != life:
            return False
        del self.lives[life.life_id]
        return True


class Process:
    """One life, with what may happen to it."""

    def __init__(self, world: World, name: str, stops: list[Trouble], delays: list[int]) -> None:
        self.name = name
        self.read_time = ReadTime(TTL_MS)
        self._world = world
        self._watch = LifeWatch(TTL_MS)
        self._stops = stops
        self._delays = delays
        world.store.lives[name] = NodeLife(1, name, name, 0)
        world.beaten_ms[name] = 0
        world.at(0, self.beat)

    def runs_again_ms(self, at_ms: int) -> int:
        """Return when the process runs: now, or after its stop."""
        return max([at_ms, *(a + b for a, b in self._stops if a <= at_ms < a + b)])

    def may_read(self, at_ms: int) -> bool:
        return self.runs_again_ms(at_ms) == at_ms and self.read_time.left_ms(at_ms) > 0

    def beat(self) -> None:
        """Send a beat, which is also a look."""
        world, sent_ms = self._world, self._world.now_ms
        there_ms, back_ms = (self._delays[(sent_ms + n) % len(self._delays)] for n in (0, 1))

        def arrive() -> None:
            found = world.store.beat(self.name)
            world.beaten_ms[self.name] = world.now_ms
            runs_ms = self.runs_again_ms(world.now_ms + back_ms)
            world.at(runs_ms, lambda: self.answer(found, sent_ms))

        world.at(sent_ms + there_ms, arrive)

    def answer(self, found: list[NodeLife] | None, sent_ms: int) -> None:
        now_ms = self._world.now_ms
        if found is None:
            self.read_time.life_ended()
            return
        self.read_time.beat_succeeded(sent_ms)
        others = [life for life in found if life.life_id != self.name]
        for life in self._watch.look(others, sent_ms, now_ms):
            if self._world.store.end(life):
                assert now_ms - self._world.beaten_ms[life.life_id] >= TTL_MS, "ended too early"
                self._world.ended[life.life_id] = now_ms
        next_ms = min(sent_ms + self._watch.next_look_ms(), now_ms + beat_interval_ms(TTL_MS))
        self._world.at(self.runs_again_ms(max(next_ms, now_ms + 1)), self.beat)


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.store = Store()
        self.beaten_ms: dict[str, int] = {}
        """When the last beat of each life reached the store."""
        self.ended: dict[str, int] = {}
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, at_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (at_ms, next(self._order), call))

    def run(self, processes: list[Process]) -> None:
        """Run to the end, and check each moment in which something happens."""
        while self._calls and self._calls[0][0] <= END_MS:
            self.now_ms, _, call = heapq.heappop(self._calls)
            for process in processes:  # before an answer changes anything, and after it
                assert process.name in self.store.lives or not process.may_read(self.now_ms)
            call()


stops = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 2_000)), max_size=3)
quick = st.lists(st.integers(0, 150), min_size=1, max_size=7)
delays = st.lists(st.integers(0, 150) | st.integers(0, 900), min_size=1, max_size=7)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(stops, delays), min_size=2, max_size=3))
def test_nobody_reads_after_the_end_of_its_life_and_nobody_is_ended_within_a_ttl(troubles) -> None:
    world = World()
    processes = [Process(world, f"p{n}", *trouble) for n, trouble in enumerate(troubles)]
    world.run(processes)


@settings(max_examples=100, deadline=None)
@given(quick, st.integers(0, 500))
def test_who_stops_for_good_is_ended_and_who_runs_is_not(delays: list[int], at_ms: int) -> None:
    world = World()
    dead = Process(world, "dead", [(at_ms, 60_000)], [1])
    alive = Process(world, "alive", [], delays)
    world.run([dead, alive])
    assert [*world.ended] == ["dead"]
    assert world.ended["dead"] >= at_ms + TTL_MS // 2
    assert [*world.store.lives] == ["alive"]
