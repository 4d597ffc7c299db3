"""A page that is made once for all who ask at the same time."""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.web.shared_page import SharedPage
from tests.helpers.runtime.virtual_loop import turns


class Maker:
    """Makes pages with a number, when the test lets it go on."""

    def __init__(self) -> None:
        self.made = 0
        self.go_on = asyncio.Event()

    async def make(self) -> bytes:
        self.made += 1
        number = self.made
        await self.go_on.wait()
        return b"%d" % number


async def test_those_who_ask_while_a_page_is_made_get_the_same() -> None:
    maker = Maker()
    shared = SharedPage(maker.make)
    asking = [asyncio.create_task(shared.page()) for _ in range(3)]
    await turns()
    maker.go_on.set()
    assert await asyncio.gather(*asking) == [b"1"] * 3
    assert await shared.page() == b"2"


async def test_who_gives_up_does_not_end_it_for_the_others() -> None:
    maker = Maker()
    shared = SharedPage(maker.make)
    one, other = (asyncio.create_task(shared.page()) for _ in range(2))
    await turns()
    one.cancel()
    await asyncio.wait([one])
    maker.go_on.set()
    assert await other == b"1"


async def test_a_page_that_fails_is_made_again() -> None:
    failures = [OSError("no")]

    async def make() -> bytes:
        if failures:
            raise failures.pop()
        return b"page"

    shared = SharedPage(make)
    with pytest.raises(OSError, match="no"):
        await shared.page()
    assert await shared.page() == b"page"


async def test_a_stop_ends_the_page_that_is_made() -> None:
    shared = SharedPage(Maker().make)
    asking = asyncio.create_task(shared.page())
    await turns()
    await shared.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
