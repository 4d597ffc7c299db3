"""Two nodes use one store in turn, and readers by URL find the events of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.restoring import History, standing_in_store
from groupkeeper.coordinator.cli.store_place import StorePlace
from groupkeeper.coordinator.cli.stored_events import stored_events
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.pipeline.restore.apply import Purpose, make_plan
from groupkeeper.pipeline.restore.plan import Committed, GroupPlan, Log, Partition, PlanKind
from groupkeeper.pipeline.restore.standing import IncompleteHistory, Standing
from groupkeeper.storage import open as stores
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.several_logs import end_of, read_logs
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.core.records import commit
from tests.helpers.daemon.fake_cluster import FakeCluster
from tests.helpers.storage.fake_driver import FakeDriver
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.sites import KINDS, FakeSite, make_site, url_of
from tests.helpers.storage.storage_owner import Owner

NOON_MS: Final = 1_700_000_000_000
MINUTE_MS: Final = 60_000


class Turns:
    """A store that nodes use one after the other. Each append takes a millisecond."""

    def __init__(self, site: Any, url: str) -> None:
        self.site = site
        self.url = url
        self.place = StorePlace(url)
        self._ticks = count(NOON_MS)
        self.now_ms = NOON_MS
        self.behind_ms: dict[int, int] = {}
        """How much the clock of a node is behind."""
        self.current: dict[Partition, Committed] = {}
        """The offsets of group g, as the coordinator has them."""

    def node(self, node_id: int) -> JournalStorage:
        def clock() -> int:
            self.now_ms = next(self._ticks)
            return self.now_ms - self.behind_ms.get(node_id, 0)

        return JournalStorage(
            self.site.driver(),
            node_id=node_id,
            name=f"host:{node_id}",
            lease_ttl_ms=TTL_MS,
            clock=clock,
        )

    async def turn(self, node_id: int, topics: Sequence[str], folds: bool = True) -> None:
        """Start a node, commit an offset in each topic, and stop it."""
        owner = await Owner(self.node(node_id)).start()
        for topic in topics:
            offset = next(self._ticks) - NOON_MS
            await owner.append(0, [commit("g", offset, topic=topic)])
            await owner.append(1, [commit("other", offset, topic=topic)])
        if folds:
            await owner.fold_all()
        self.current = {
            Partition(key[3], key[4]): Committed(*value[:3])
            for key, value in owner.model.keys.items()
            if key[0] == "offset" and key[2] == "g"
        }
        await owner.storage.close()

    def standing(self, as_of_ms: int, accepts_gaps: bool = False) -> Standing:
        asked = History("g", as_of_ms, (self.place, None, None), [], accepts_gaps)
        return standing_in_store(self.place, asked)

    def planned(self, as_of_ms: int) -> Sequence[GroupPlan]:
        """Return the changes that a restore plans in a cluster that has today's offsets."""
        logs = {Partition(topic, 0): Log(0, 10**9) for topic in "abcd"}
        cluster = FakeCluster({"g": self.current}, logs)
        found = self.standing(as_of_ms)
        plan = make_plan(
            cluster,
            {"g": found.offsets},
            None,
            Purpose(PlanKind.RESTORE, "a", 1, 2),
            removes=lambda partition: partition not in found.unknown,
        )
        return plan.content.groups

    def events(self, *arguments: Any, **asked: Any) -> list[EventDict]:
        return [*read_events(self.url, *arguments, **asked)]


@pytest.fixture(params=KINDS)
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Turns:
    site = make_site(request)
    return on_fake(site, monkeypatch) if isinstance(site, FakeSite) else Turns(site, url_of(site))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return on_fake(FakeSite(), monkeypatch)


def on_fake(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(stores, "journal_driver", lambda *_: FakeDriver(site.server))
    return Turns(site, "postgresql://me@h/db")


def names(events: Sequence[EventDict]) -> list[str]:
    return [each["topics"][0]["topic"] for each in events if each["kind"] == "commit"]


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    """Run a call that blocks beside the loop of the store."""
    return await asyncio.to_thread(call, *arguments)


async def test_what_nodes_wrote_in_turn_is_read_restored_and_followed_as_one_history(
    turns: Turns,
) -> None:
    await turns.turn(1, ["a", "b", "c"])
    moment_ms = turns.now_ms
    then = turns.current
    before = await in_thread(turns.planned, moment_ms)
    assert [*before[0].to_do] == []
    source = stored_events(turns.place, None, "g")
    end = await in_thread(source.end)
    await turns.turn(2, ["b"], folds=False)
    assert turns.current.keys() == then.keys()
    later_ms, later = turns.now_ms, turns.current
    await turns.turn(1, ["c", "d"])

    found = await in_thread(turns.standing, moment_ms)
    assert (found.offsets, found.unknown) == (then, frozenset())
    assert (await in_thread(turns.standing, later_ms)).offsets == later
    (plan,) = await in_thread(turns.planned, moment_ms)
    assert {each.topic: each.target for each in plan.to_do} == {
        "b": then[Partition("b", 0)],
        "c": then[Partition("c", 0)],
        "d": None,
    }
    turns.current = then
    assert await in_thread(turns.planned, moment_ms) == before

    events = await in_thread(lambda: turns.events(group_id="g"))
    assert names(events) == ["a", "b", "c", "b", "c", "d"]
    everything = await in_thread(turns.events)
    assert [each for each in everything if each["group"] == "g"] == events
    ends = {"1": 11, "2": 2}
    assert await in_thread(source.end) == ends
    assert len({(each["log_id"], each["seq"]) for each in everything}) == len(everything) == 13
    new = await in_thread(lambda: [*source.read(after=end)])
    assert names(new) == ["b", "c", "d"]
    assert await in_thread(turns.events, ends) == []
    assert names(await in_thread(turns.events, {"1": 11, "2": 0})) == ["b", "b"]
    with pytest.raises(ValueError, match="a number for each of 1, 2: name them"):
        await in_thread(turns.events, 3)
    tail = ["log", "tail", "--store", turns.url, "-o", "json", "-n", "4", "-g", "g"]
    told = await in_thread(CliRunner().invoke, app, tail)
    assert [json.loads(line)["topics"][0]["topic"] for line in told.stdout.splitlines()] == [
        *("c", "b", "c", "d")
    ]


async def test_clocks_that_differ_do_not_change_the_order_within_a_group(fake: Turns) -> None:
    fake.behind_ms[2] = MINUTE_MS // 2
    await fake.turn(1, ["a", "b"])
    await fake.turn(2, ["a"])
    await fake.turn(1, ["b", "c"])
    whole = await in_thread(lambda: fake.events(group_id="g"))
    assert names(whole) == ["a", "b", "a", "b", "c"]
    everything = await in_thread(fake.events)
    for group in ("g", "other"):
        assert names([e for e in everything if e["group"] == group]) == names(whole)
    assert (await in_thread(fake.standing, fake.now_ms)).offsets == fake.current


async def test_a_node_that_is_gone_with_all_its_events_is_a_gap(fake: Turns) -> None:
    await fake.turn(1, ["a", "b"])
    await fake.turn(2, ["b"])
    log = fake.site.server.event_log
    first = log[0]["log_id"]
    fake.site.server.event_log = [each for each in log if each["log_id"] != first]
    gaps: list[tuple[int, int]] = []
    await in_thread(lambda: fake.events(on_gap=lambda *gap: gaps.append(gap)))
    assert gaps == [(1, 4)]
    with pytest.raises(IncompleteHistory, match=r"events 1 to 4 are missing \(node 1\)"):
        await in_thread(fake.standing, fake.now_ms)
    accepted = await in_thread(fake.standing, fake.now_ms, True)
    assert {each.topic for each in accepted.offsets} == {"b"}


async def test_events_that_are_missing_at_the_end_or_between_others_are_a_gap(fake: Turns) -> None:
    await fake.turn(1, ["a", "b"])
    await fake.turn(2, ["b"])
    await fake.turn(1, ["c"])
    server = fake.site.server
    whole = [*server.event_log]
    ends = await in_thread(lambda: end_of(stores.log_store(fake.url).logs()))
    assert ends == {"1": 7, "2": 2}
    for lost_seq in (4, 7):
        server.event_log = [each for each in whole if each["seq"] != lost_seq]
        with pytest.raises(IncompleteHistory, match=rf"events 1 to {lost_seq} .*\(node 1\)"):
            await in_thread(fake.standing, fake.now_ms)


async def test_of_one_node_without_files_the_changes_after_the_deleted_events_count(
    fake: Turns,
) -> None:
    await fake.turn(1, ["a", "b", "c"])
    log = fake.site.server.event_log
    fake.site.server.event_log = [each for each in log if each["seq"] > 2]
    found = await in_thread(fake.standing, fake.now_ms)
    assert {each.topic for each in found.offsets} == {"b", "c"}
    assert found.named == found.offsets.keys()
    await fake.turn(2, ["a"])
    with pytest.raises(IncompleteHistory, match=r"events 1 to 2 .*\(node 1\)"):
        await in_thread(fake.standing, fake.now_ms)


async def test_files_of_another_machine_are_a_gap(fake: Turns, tmp_path: Any) -> None:
    async def sealed(node_id: int, topics: Sequence[str]) -> None:
        settings = SealSettings(directory=tmp_path / f"log-{node_id}", segment_bytes=1)
        storage = SealedStorage(fake.node(node_id), settings, poll_s=0.01)
        owner = await Owner(storage).start()
        before = len(fake.site.server.event_log)
        for topic in topics:
            await owner.append(0, [commit("g", 1, topic=topic)])
            await owner.fold_all()  # events that are sealed before this leave with the next file
            await until(lambda: storage.stats()["sealed_seq"] == storage.stats()["last_seq"])
        await until(lambda: len(fake.site.server.event_log) - before <= len(topics))
        await storage.close()

    await sealed(1, ["a", "b", "c"])
    await sealed(2, ["b", "d"])
    whole = await in_thread(fake.standing, fake.now_ms)
    assert {each.topic for each in whole.offsets} == {"a", "b", "c", "d"}
    (tmp_path / "log-1").rename(tmp_path / "elsewhere")
    with pytest.raises(IncompleteHistory, match=r"\(node 1\)"):
        await in_thread(fake.standing, fake.now_ms)
    (tmp_path / "elsewhere").rename(tmp_path / "log-1")
    assert await in_thread(fake.standing, fake.now_ms) == whole


async def test_a_node_that_wrote_nothing_has_no_log(fake: Turns) -> None:
    await fake.turn(1, [])
    assert await in_thread(fake.events, 3) == []
    await fake.turn(2, ["a"])
    assert names(await in_thread(fake.events, 1)) == ["a"]


async def test_a_life_that_ends_during_a_look_is_not_missed(
    fake: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await Owner(fake.node(1)).start()
    await owner.append(0, [commit("g", 1)], [GroupCreated(group_id="g")])
    (life,) = fake.site.server.lives.values()
    look = FakeDriver.lives

    async def lives(driver: FakeDriver) -> Any:
        found = await look(driver)
        life.is_over = True
        return found

    monkeypatch.setattr(FakeDriver, "lives", lives)
    assert len(await in_thread(fake.events)) == 2
    await owner.storage.close()


async def test_equal_ends_of_two_logs_are_two_logs(fake: Turns) -> None:
    fake.behind_ms[2] = 4
    await fake.turn(1, ["a"])
    await fake.turn(2, ["a"])
    logs = stores.log_store(fake.url).logs()
    assert await in_thread(end_of, logs) == {"1": 2, "2": 2}
    assert len(await in_thread(lambda: [*read_logs(logs)])) == 4


async def test_all_nodes_of_a_store_give_it_one_name(turns: Turns) -> None:
    for node_id in (2, 1, 2):
        await turns.turn(node_id, ["a"])
    events = await in_thread(turns.events)
    named = {each["store"] for each in events if each["kind"] == "log_started"}
    (first,) = {each["log_id"] for each in events if each["lease_epoch"] == 1 and each["seq"] == 1}
    assert named == {f"{first}/2"}
    await turns.turn(1, ["a"])
    events = await in_thread(turns.events)
    named = {each["store"] for each in events if each["kind"] == "log_started"}
    assert named == {f"{first}/1", f"{first}/2"}


async def test_nodes_that_had_names_of_their_own_agree_on_that_of_the_lowest(fake: Turns) -> None:
    """As versions up to 0.2.0.dev9 named a store."""
    for node_id in (1, 2):
        await fake.turn(node_id, ["a"])
    notes = fake.site.server.seal_notes
    notes |= {1: b'{"store": "one"}', 2: b'{"store": "two"}'}
    for node_id in (2, 1, 2):
        await fake.turn(node_id, ["a"])
        assert f'"store":"one/{node_id}"'.encode() in notes[node_id]
