"""Offsets out of the logs of simulated worlds are what was durable in them, at every moment.

The worlds of ``tests/simulation``: stores that fail, owners that change, kills at every point,
clocks that are set. What the store was seen to make durable is the judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from pyspark.sql import functions as F

from groupkeeper.pipeline.tables.bronze import read_segments, with_store
from groupkeeper.pipeline.tables.offsets import offsets_as_of
from groupkeeper.storage.segment_lines import EventDict
from tests.pipeline.conftest import a_site
from tests.pipeline.histories import Offsets, told
from tests.simulation import worlds
from tests.simulation.history import Durable
from tests.simulation.world import World

SEEDS = range(12)
EVERY_APPENDS = 25
"""After so many appends what is durable is noted."""


@dataclass
class Lived:
    """What one world left."""

    events: list[EventDict] = field(default_factory=list)
    moments: list[tuple[int, Offsets]] = field(default_factory=list)
    """The last durable seq, and the offsets that stood then."""
    appends: int = 0


def standing(durable: Durable) -> Offsets:
    return {
        (group_id, topic, number): (offset.offset, offset.leader_epoch, offset.metadata)
        for group_id, saved in durable.saved.items()
        for topic, parts in saved.offsets.items()
        for number, offset in parts.items()
    }


def live(seed: int, monkeypatch: pytest.MonkeyPatch) -> Lived:
    """Live a world and watch what becomes durable in it."""
    lived = Lived()
    stored = Durable.stored

    def watched(durable, *what):
        stored(durable, *what)
        lived.appends += 1
        if lived.appends % EVERY_APPENDS == 0 and durable.events:
            lived.moments.append((durable.events, standing(durable)))

    class Watched(World):
        async def check_stored(self):
            await super().check_stored()
            lived.events = self.backend.events()
            lived.moments.append((self.durable.events, standing(self.durable)))

    with monkeypatch.context() as patch:
        patch.setattr(Durable, "stored", watched)
        patch.setattr(worlds, "World", Watched)
        worlds.run_world(seed)
    # what begins a log is an event of the storage, which the world does not count
    seqs = [event["seq"] for event in lived.events if event["kind"] != "log_started"]
    lived.moments = [([0, *seqs][count], offsets) for count, offsets in lived.moments]
    return lived


@pytest.fixture(scope="module")
def lives(spark, tmp_path_factory):
    """All worlds in one frame; a clock that was set back has begun new logs in some."""
    site = a_site(spark, tmp_path_factory.mktemp("worlds"))
    lived, stores = {}, {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        for seed in SEEDS:
            life = lived[seed] = live(seed, monkeypatch)
            for event in life.events:
                event["log_id"] = f"{seed}-{event['log_id']}"
                if previous := event.get("previous_log_id"):
                    event["previous_log_id"] = f"{seed}-{previous}"
                stores[event["log_id"]] = str(seed)
            site.seal(life.events)
    events = with_store(read_segments(spark, str(site.log_dir)), stores).cache()
    yield lived, events
    events.unpersist()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_offsets_at_any_moment_are_what_was_durable_then(lives, share):
    lived, events = lives
    moments = {
        str(seed): life.moments[round(share * (len(life.moments) - 1))]
        for seed, life in lived.items()
    }
    cuts = F.create_map(*(F.lit(x) for store, (seq, _) in moments.items() for x in (store, seq)))
    rows = offsets_as_of(events.where(F.col("seq") <= cuts[F.col("store")])).collect()
    for store, (seq, offsets) in moments.items():
        found = told(row for row in rows if row["store"] == store)
        assert found == offsets, f"seed {store}, seq {seq}"
    assert share == 0.0 or sum(len(offsets) for _, offsets in moments.values()) > 20


def test_the_worlds_had_what_they_are_there_for(lives):
    lived, _ = lives
    kinds = {event["kind"] for life in lived.values() for event in life.events}
    assert {"commit", "offset_deleted", "member_evicted", "shard_loaded"} <= kinds
    assert any(len({event["log_id"] for event in life.events}) > 1 for life in lived.values())
