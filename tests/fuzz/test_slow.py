"""The search for slow frames: what it sends, what it keeps, and what it complains of."""

from __future__ import annotations

import random

import pytest

from groupkeeper.coordinator.handlers import heartbeat
from groupkeeper.coordinator.server.watch import SLOW_S
from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import FrameSplitter, read_request_header
from groupkeeper.protocol.versions import ApiKey
from tests.fuzz import prepared
from tests.fuzz.prepared import ExactWatch, new_loop
from tests.fuzz.recipes import MAX_FRAME_BYTES, SERVED, Recipe, changed, extremes, first
from tests.fuzz.slow import (
    KEPT_AN_API,
    Measured,
    Search,
    a_bench,
    climb,
    read_seeds,
    slow_ones,
)


def read(recipe: Recipe, max_elements: int = 10**6) -> None:
    """Read the body of its frame, which must be all of it."""
    (frame,) = FrameSplitter(MAX_FRAME_BYTES).feed(recipe.frame())
    header = read_request_header(frame)
    assert (header.api_key, header.api_version) == (recipe.key, recipe.version)
    read_request(recipe.key, recipe.version, frame, header.body_offset, max_elements)


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_recipe_of_each_api_and_version_makes_a_valid_frame(key: int, version: int) -> None:
    read(first(key, version))


def test_a_changed_recipe_makes_a_frame_within_the_limit() -> None:
    rng, reasons = random.Random(1), set[str]()
    recipe = first(ApiKey.OFFSET_COMMIT, 8)
    for _ in range(20):
        recipe, frame = changed(rng, recipe).fitting()
        assert len(frame) - 4 <= MAX_FRAME_BYTES
        try:
            read(recipe)
        except ProtocolError as error:
            reasons.add(error.reason)
    assert reasons <= {"null_not_allowed", "too_many_elements"}, reasons


def test_what_was_once_the_worst_is_a_recipe_and_no_file() -> None:
    seeds = read_seeds()
    assert {recipe.key for recipe in seeds} >= {ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP}
    assert all(Recipe(**recipe.plain()) == recipe for recipe in seeds)


@pytest.mark.parametrize("key", [ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_a_search_begins_with_long_texts_and_many_elements(key: ApiKey) -> None:
    sizes = [recipe._size() for recipe in extremes(key, 5)]
    assert min(sizes) < 1_000
    assert max(sizes) > 5_000_000


def test_a_search_climbs_to_the_slowest_frame() -> None:
    """Here a frame costs what its group id is long: nothing else is told."""
    found = Search(random.Random(5), [])
    found._untried = [first(ApiKey.HEARTBEAT, 4)]
    for _ in range(600):
        recipe = found.next()
        size = len(recipe.frame())
        found.took(Measured(size / 1e6, "test", recipe, size))
    heartbeat = found.worst[ApiKey.HEARTBEAT]
    assert len(heartbeat) <= KEPT_AN_API
    assert heartbeat[0].frame_bytes > 90_000, "three texts of 32 KB"


async def test_a_search_without_time_still_tries_what_was_once_the_worst() -> None:
    seeds, tried = read_seeds(), []

    async def measure(recipe: Recipe) -> Measured:
        tried.append(recipe)
        return Measured(0.001, "test", recipe, 100)

    assert await climb(Search(random.Random(5), seeds), measure, lambda: False) == len(seeds)
    assert tried == seeds


def test_a_callback_above_the_promise_is_a_complaint() -> None:
    recipe = first(ApiKey.HEARTBEAT, 4)
    fine, slow = (Measured(s, "callback", recipe, 9) for s in (SLOW_S, SLOW_S * 1.01))
    assert slow_ones([fine]) == []
    (complaint,) = slow_ones([fine, slow])
    assert "HEARTBEAT v4" in complaint


def test_a_callback_that_works_for_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch sees what a frame costs, whichever callback does the work."""
    monkeypatch.setattr(prepared, "_HOLD", ())
    monkeypatch.setattr(prepared, "CROWD", 2)
    handle = heartbeat.read_heartbeat

    def slow(*args: object) -> object:
        sum(range(5_000_000))
        return handle(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(heartbeat, "read_heartbeat", slow)
    watch = ExactWatch()
    loop = new_loop(watch)

    async def measure() -> tuple[Measured, Measured]:
        async with a_bench(watch) as bench:
            recipe = first(ApiKey.HEARTBEAT, 4)
            return await bench.measure(recipe), await bench.measure(first(ApiKey.FETCH, 12))

    try:
        heartbeat_cost, fetch_cost = loop.run_until_complete(measure())
    finally:
        loop.close()
    assert heartbeat_cost.seconds > fetch_cost.seconds
    assert heartbeat_cost.callback == "Connection.data_received"
