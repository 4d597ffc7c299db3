"""The targets find what they are there to find: each bug is put in, and told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from groupkeeper.coordinator.handlers.table import ROUTES
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import ApiKey
from tests.fuzz import target
from tests.fuzz.seeds import life
from tests.fuzz.target import converse, read_bytes

LIST_GROUPS = (int(ApiKey.LIST_GROUPS), 5)
HEARTBEAT = (int(ApiKey.HEARTBEAT), 4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def raises(exchange: Any, services: Any) -> None:
    raise KeyError("a bug")


def never_answers(exchange: Any, services: Any) -> None:
    """Forgets the exchange."""


def answers_too_much(exchange: Any, services: Any) -> None:
    size, rest = 13, bytes(9)
    exchange.send(size.to_bytes(4) + exchange.correlation_id.to_bytes(4) + rest)


def answers_another(exchange: Any, services: Any) -> None:
    exchange.send((10).to_bytes(4) + bytes(10))


@pytest.mark.parametrize(
    ("handler", "route", "told"),
    [
        (raises, LIST_GROUPS, "an exception in a handler"),
        (never_answers, LIST_GROUPS, "was not answered"),
        (answers_too_much, HEARTBEAT, "bytes left over"),
        (answers_another, HEARTBEAT, "answers out of order"),
    ],
)
def test_a_handler_with_a_bug_is_told(monkeypatch, handler, route, told) -> None:
    converse(life(0))
    monkeypatch.setitem(ROUTES, route, handler)
    with pytest.raises(AssertionError, match=told):
        converse(life(0))


def test_a_core_with_a_bug_is_told(monkeypatch) -> None:
    def bug(self: Any, request: Any, ticket: Any, now: Any) -> Any:
        raise IndexError("a bug")

    monkeypatch.setattr(target.Shard, "handle", bug)
    with pytest.raises(AssertionError, match="an exception in the core"):
        converse(life(0))


def test_a_reader_that_raises_anything_but_its_own_error_is_told(monkeypatch) -> None:
    def bug(*_: Any) -> Any:
        raise IndexError("a bug")

    monkeypatch.setattr(target, "read_request", bug)
    with pytest.raises(IndexError):
        read_bytes(life(0))


def test_readers_that_disagree_are_told(monkeypatch) -> None:
    def refuses(*_: Any) -> Any:
        raise ProtocolError("too_many_elements", "a bug")

    monkeypatch.setitem(target.HOT, ApiKey.HEARTBEAT, refuses)
    with pytest.raises(AssertionError, match="hot: too_many_elements, careful: None"):
        read_bytes(life(0))
