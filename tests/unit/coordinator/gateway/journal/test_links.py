"""Which broker the journal asks for what any broker knows."""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.gateway.client import BrokerError, NoAnswer, NotSent, UnsupportedApi
from groupkeeper.coordinator.gateway.journal.links import JournalLinks
from groupkeeper.coordinator.handlers.services import Endpoint

ANY_API = 3, range(1)


class Brokers:
    """Three brokers, some of which fail."""

    def __init__(self) -> None:
        self.failing: dict[int, BrokerError] = {}
        self.asked: list[int] = []
        where = {each: Endpoint("broker", each) for each in (1, 2, 3)}
        self.links = JournalLinks(lambda: where, lambda endpoint: Client(self, endpoint.port))


class Client:
    def __init__(self, brokers: Brokers, number: int) -> None:
        self.brokers, self.number = brokers, number

    async def ask(self, *_: Any, **__: Any) -> int:
        self.brokers.asked.append(self.number)
        if self.number in self.brokers.failing:
            raise self.brokers.failing[self.number]
        return self.number

    def close(self) -> None:
        pass


@pytest.mark.parametrize("failure", [NoAnswer("late"), NotSent("down"), UnsupportedApi("old")])
async def test_next_broker_is_asked_if_one_fails_and_is_asked_first_later(failure) -> None:
    brokers = Brokers()
    brokers.failing[1] = failure
    assert await brokers.links.ask_any(*ANY_API) == 2
    assert await brokers.links.ask_any(*ANY_API) == 2
    assert brokers.asked == [1, 2, 2]
    brokers.failing = {2: failure}
    assert await brokers.links.ask_any(*ANY_API) == 3
    brokers.failing = {2: failure, 3: failure}
    assert await brokers.links.ask_any(*ANY_API) == 1


async def test_last_failure_is_raised_if_no_broker_answers() -> None:
    brokers = Brokers()
    brokers.failing = {each: NoAnswer(str(each)) for each in (1, 2, 3)}
    with pytest.raises(NoAnswer, match="3"):
        await brokers.links.ask_any(*ANY_API)
    assert brokers.asked == [1, 2, 3]
