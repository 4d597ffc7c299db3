"""The connections to brokers for the journal, a topic of ours in the upstream cluster.

A broker carries out the requests of one connection one after the other. Reads wait for new records.
So reads and writes use different connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from groupkeeper.coordinator.gateway.client import BrokerError, NotSent
from groupkeeper.coordinator.handlers.services import Endpoint

WRITE_LANES: Final = 8
"""The number of connections for writes to one broker, so that many producers can write at the same
time. The number of a connection is called its lane.
"""

READ_LANE: Final = -1
ADMIN_LANE: Final = -2


class BadAnswer(BrokerError):
    """The answer of a broker does not fit the request."""


def only(rows: Any) -> Any:
    """Return the only element of an array in an answer. Raises BadAnswer if the
    array has none or several.
    """
    if rows is None or len(rows) != 1:
        count = 0 if rows is None else len(rows)
        raise BadAnswer(f"a broker answered with {count} elements where one was asked for")
    return rows[0]


class JournalClient(Protocol):
    """The methods of ``BrokerClient`` that the journal uses."""

    async def ask(
        self, api_key: int, versions: range, *, timeout_s: float | None = None, **values: Any
    ) -> Any: ...

    def close(self) -> None: ...


class JournalLinks:
    """The connections to brokers. Each broker has one for reads, one for administration, and
    several for writes.
    """

    def __init__(
        self,
        brokers: Callable[[], Mapping[int, Endpoint]],
        connect: Callable[[Endpoint], JournalClient],
    ) -> None:
        """``brokers`` returns the present addresses of the brokers. ``connect`` returns a client
        for an address.
        """
        self._brokers = brokers
        self._connect = connect
        self._clients: dict[tuple[int, int], tuple[Endpoint, JournalClient]] = {}
        self._answered: int | None = None
        """The broker that last answered a call of ``ask_any``."""

    async def ask(
        self,
        broker_id: int,
        lane: int,
        api_key: int,
        versions: range,
        *,
        timeout_s: float | None = None,
        **values: Any,
    ) -> Any:
        """Send a request to a broker over the connection ``lane``. Return the answer.

        Raises NotSent if the broker is not known, or another BrokerError if it does not answer.
        """
        client = self._client(broker_id, lane)
        return await client.ask(api_key, versions, timeout_s=timeout_s, **values)

    async def ask_any(self, api_key: int, versions: range, **values: Any) -> Any:
        """Ask the broker that answered last, and then the others, until one answers. Return its
        answer.

        Use it only for requests that may be repeated. If no broker answers, raise the BrokerError
        of the last one.
        """
        failure: BrokerError = NotSent("no broker of the upstream is known")
        known = sorted(self._brokers())
        first = known.index(self._answered) if self._answered in known else 0
        for broker_id in [*known[first:], *known[:first]]:
            try:
                answer = await self.ask(broker_id, ADMIN_LANE, api_key, versions, **values)
            except BrokerError as error:
                failure = error
            else:
                self._answered = broker_id
                return answer
        raise failure

    def close(self) -> None:
        """Close all connections."""
        for _, client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, broker_id: int, lane: int) -> JournalClient:
        endpoint = self._brokers().get(broker_id)
        if endpoint is None:
            raise NotSent(f"broker {broker_id} of the upstream is not known")
        known = self._clients.get((broker_id, lane))
        if known is not None and known[0] == endpoint:
            return known[1]
        if known is not None:
            known[1].close()
        client = self._connect(endpoint)
        self._clients[broker_id, lane] = endpoint, client
        return client
