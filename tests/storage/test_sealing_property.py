"""Whatever is appended, sealed, killed and started again: files and rows are all that ever was."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.event_log.check import verify
from tests.helpers.core.examples import examples
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, until
from tests.helpers.storage.storage_owner import Owner

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 60_000, 400_000, DAY_MS])),
    st.tuples(st.just("step back"), st.sampled_from([5_000, 30_000])),
    st.tuples(st.just("fold"), st.just(0)),
    st.tuples(st.just("seal"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
)


class Life:
    """One store through everything that is done to it."""

    def __init__(self, directory: Path, segment_bytes: int, fold_after: int) -> None:
        self.directory = directory
        self.store = SealedStore(directory, segment_bytes=segment_bytes)
        self.store.fold_after = fold_after
        self.owner: Owner | None = None
        self.deaths = 0
        self.number = 0

    async def do(self, what: str, amount: int) -> None:
        if self.owner is None:
            self.owner = await self.store.owner()
        match what:
            case "append":
                for _ in range(amount):
                    self.number += 1
                    group = f"g{self.number % 3}"
                    events = [GroupCreated(group_id=group)] * (self.number % 2)
                    await self.store.append(self.owner, 0, [commit(group, self.number)], events)
            case "wait":
                self.store.now_ms += amount
            case "step back":
                self.store.now_ms -= amount
            case "fold":
                await self.owner.fold_all()
            case "seal":
                self.store.now_ms += 2 * DAY_MS
                await until(lambda: self.owner.storage.stats()["unsealed_rows"] == 0)  # type: ignore[union-attr]
            case "restart":
                await self.end()
            case "kill":
                self.deaths += 1
                image = self.store.image(self.directory / f"life-{self.deaths}")
                await self.end()
                self.store = image

    async def end(self) -> None:
        if self.owner is not None:
            await self.owner.storage.close()
        self.owner = None


async def live(steps: list[tuple[str, int]], segment_bytes: int, fold_after: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        life = Life(Path(directory), segment_bytes, fold_after)
        for what, amount in steps:
            await life.do(what, amount)
            assert life.store.read() == life.store.appended, what
        await life.do("append", 1)
        await life.end()
        store = life.store
        assert store.read() == store.appended
        report = verify(store.log_dir, reads_events=True)
        assert report.is_sound, report
        assert sum(log.events for log in report.logs) == len(store.appended)


@settings(max_examples=examples(15), deadline=None)
@given(
    steps=st.lists(STEPS, max_size=14),
    segment_bytes=st.sampled_from([1_000, 4_000, 1_000_000]),
    fold_after=st.sampled_from([0, 50_000]),
)
def test_files_and_rows_are_every_event_that_was_appended(
    steps: list[tuple[str, int]], segment_bytes: int, fold_after: int
) -> None:
    asyncio.run(live(steps, segment_bytes, fold_after))
