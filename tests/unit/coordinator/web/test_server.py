"""uvicorn as the daemon runs it."""

from __future__ import annotations

import asyncio
from typing import Any

from groupkeeper.coordinator.web.gate import Gate
from groupkeeper.coordinator.web.server import make_server
from tests.helpers.runtime.virtual_loop import virtual_time


async def no_pages(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application that is never called."""


@virtual_time
async def test_an_idle_server_wakes_the_loop_once_a_second_and_keeps_the_date() -> None:
    server = make_server(no_pages, Gate(10, 10.0, lambda _: None))
    server.config.load()
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    dates = []
    tick = server.on_tick

    async def counted(counter: int) -> bool:
        server.server_state.default_headers = []
        should_end = await tick(counter)
        dates.append([name for name, _ in server.server_state.default_headers])
        return should_end

    server.on_tick = counted  # type: ignore[method-assign]
    looking = asyncio.create_task(server.main_loop())
    await asyncio.sleep(10.5)
    assert len(dates) == 11
    assert all(b"date" in names for names in dates)
    server.stop()
    await looking
    assert loop.time() == begun_s + 10.5, "a stop waits for no tick"
