"""One session with ZooKeeper, for asyncio.

kazoo works with threads, which this module hides. Results and watches reach the loop by
``call_soon_threadsafe``, and no method here blocks. After a session is lost, kazoo would begin a
new one without a message to the owners of ephemeral znodes. So this module then stops kazoo.

A session is lost if a server says so, or if no server has answered for the session timeout. This
time begins when the last answered request was sent. So the client treats a session as lost before
the servers do, never after. A process that was suspended learns of the loss in its first call.

If the connection breaks, calls that only read are sent again. A write is sent again too, although
the first attempt may have succeeded. If the second attempt is refused, the content of the znode
shows whether the first one succeeded.

This file is long because every call of a session is here, with its repetition after an answer was
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Self

import kazoo.client
import kazoo.exceptions

from groupkeeper.storage.connections.zookeeper_client import (
    access_list,
    new_client,
    refusal,
    stop_client,
    why_not_connected,
)
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    NotAllowed,
    OutcomeUnknown,
    RequestTooLarge,
    ServerUnreachable,
    SessionClosed,
    SessionLost,
    ZooKeeperError,
)
from groupkeeper.storage.connections.zookeeper_settings import ZooKeeperSettings
from groupkeeper.storage.connections.zookeeper_transaction import (
    Operation,
    check_answers,
    sender,
    size_of,
)
from groupkeeper.storage.connections.zookeeper_watches import Bells

MAX_REQUEST_BYTES: Final = 0xFFFFF - 4096
"""The largest request. A server closes the connection after a request that is larger than
jute.maxbuffer (1 MiB), headers included."""
BEATS: Final = 3
"""The number of requests in one session timeout that keep the session alive. Two of them may be
lost."""
RETRY_S: Final = 0.05
"""The pause before a call is repeated. The repeated call then waits in kazoo for a new connection.
"""

_ANY_VERSION: Final = -1
_DROPPED: Final = (kazoo.exceptions.ConnectionLoss, kazoo.exceptions.OperationTimeoutError)
_ENDED: Final = (kazoo.exceptions.SessionExpiredError, kazoo.exceptions.ConnectionClosedError)


class Node(NamedTuple):
    """The content and the state of a znode, as a read returned them."""

    data: bytes
    version: int
    created_in: int
    """The id of the transaction that created the znode. If the znode is deleted and created again,
    the id differs."""
    changed_in: int
    """The id of the transaction that changed the znode last. If the znode is deleted and created
    again, the id differs too."""
    owner: int
    """The session that created the znode, if it is ephemeral; else 0."""


class Children(NamedTuple):
    """The names of the children of a znode, as one read returned them."""

    names: tuple[str, ...]
    """Sorted, each without the path of the znode."""
    changed_in: int
    """The id of the transaction that last created or deleted a child."""


class ZooKeeperSession:
    """A session with ZooKeeper. It begins with ``open`` or ``async with``. It ends with ``close``
    or when it is lost.
    """

    def __init__(
        self, settings: ZooKeeperSettings, count: Callable[[], None] = lambda: None
    ) -> None:
        """``count`` is called before each request, in the task that sends it."""
        self._settings = settings
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._bells = Bells(self._loop)
        self._room = asyncio.Semaphore(settings.max_outstanding)
        self._waiting: set[asyncio.Future[Any]] = set()
        self._ended: asyncio.Future[ZooKeeperError] = self._loop.create_future()
        self._connected = asyncio.Event()
        self._timeout_s = settings.session_timeout_ms / 1000
        self._good_until = float("inf")
        self._beats: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._client = new_client(settings, self._negotiated)
        self._client.add_listener(self._on_state)

    # --- the begin and the end of the session -----------------------------------------------------

    async def open(self) -> None:
        """Begin the session. Raises ServerUnreachable if no server answers in time, and NotAllowed
        if the credentials are wrong.
        """
        await asyncio.to_thread(self._client.start_async)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await self._begin()
        except TimeoutError:
            reason = self.why_not_connected
            await self.close()
            raise ServerUnreachable(
                f"{self._settings.address}: no ZooKeeper session within "
                f"{self._settings.connect_timeout_ms} ms; is a server running there?"
                + (reason and f" ({reason})")
            ) from None
        except BaseException:
            await self.close()
            raise
        self._beats = asyncio.create_task(self._beat())

    async def _begin(self) -> None:
        connected = asyncio.ensure_future(self._connected.wait())
        try:
            await asyncio.wait((connected, self._ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            connected.cancel()
        sent = self._loop.time()
        await self._again("/", self._client.exists_async, "/")
        # The servers count from this request, or later. When they began to count for the
        # connection is unknown.
        self._good_until = sent + self._timeout_s

    async def close(self) -> None:
        """End the session: the servers remove its ephemeral znodes at once."""
        self._end(SessionClosed(f"the session with {self._settings.address} was closed"))
        assert self._stopping is not None
        await asyncio.shield(self._stopping)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def id(self) -> int:
        """The id of the session, which is also the owner of its ephemeral znodes."""
        identity = self._client.client_id
        return 0 if identity is None else int(identity[0])

    @property
    def timeout_ms(self) -> int:
        """How long the servers keep a session without a request. The servers decide this value."""
        return round(self._timeout_s * 1000)

    @property
    def why_not_connected(self) -> str:
        """Why the last attempt to connect failed; "" if it succeeded."""
        return why_not_connected(self._client)

    @property
    def why_ended(self) -> ZooKeeperError | None:
        """The reason why the session has ended: SessionLost or SessionClosed. None if it has not
        ended.
        """
        if not self._ended.done() and self._loop.time() > self._good_until:
            self._lose("no server answered for as long as a session lasts")
        return self._ended.result() if self._ended.done() else None

    async def wait_ended(self) -> ZooKeeperError:
        """Wait until the session ends. Return the reason."""
        return await asyncio.shield(self._ended)

    def _negotiated(self, timeout_ms: int) -> None:
        """Store the session timeout that a server has chosen. Called on kazoo's thread."""
        self._timeout_s = timeout_ms / 1000

    def _on_state(self, state: str) -> None:
        """Process a change of kazoo's state. Called on a thread of kazoo."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._new_state, state)

    def _new_state(self, state: str) -> None:
        if state == kazoo.client.KazooState.CONNECTED:
            self._connected.set()
        elif state == kazoo.client.KazooState.LOST and not self._ended.done():
            if self._client.client_state == kazoo.client.KeeperState.AUTH_FAILED:
                self._end(NotAllowed(f"{self._settings.address} refuses the credentials"))
            else:
                self._lose("the server has ended it")

    def _lose(self, why: str) -> None:
        self._end(
            SessionLost(
                f"the ZooKeeper session with {self._settings.address} is lost ({why}), and with it "
                "every registration and claim that it made"
            )
        )

    def _end(self, why: ZooKeeperError) -> None:
        """End the session, and with it all calls and watches. A second call does nothing."""
        if not self._ended.done():
            self._ended.set_result(why)
        for future in self._waiting:
            if not future.done():
                future.set_exception(type(why)(str(why)))
        self._bells.ring_all()
        if self._beats is not None:
            self._beats.cancel()
        if self._stopping is None:
            self._stopping = self._loop.create_task(asyncio.to_thread(stop_client, self._client))

    async def _beat(self) -> None:
        """Send a request regularly, so that the servers keep the session. Each answer extends the
        time for which the session certainly lives.
        """
        while self.why_ended is None:
            pause_s = RETRY_S
            with contextlib.suppress(_Dropped, ZooKeeperError, TimeoutError):
                async with asyncio.timeout_at(self._good_until):
                    await self._once("/", self._client.exists_async, "/")
                    pause_s = self._timeout_s / BEATS
            await asyncio.sleep(pause_s)

    def forget(self, changed: Callable[[], None]) -> None:
        """Stop calling the listener ``changed``, for all znodes that it watches."""
        self._bells.forget(changed)

    # --- calls ------------------------------------------------------------------------------------

    async def exists(self, path: str, changed: Callable[[], None] | None = None) -> bool:
        """Return True if a znode exists. ``changed`` is called once: after the znode is created,
        changed or deleted, or when the session ends."""
        watch = self._bells.watch("data", path, changed)
        return await self._again(path, self._client.exists_async, path, watch=watch) is not None

    async def get(self, path: str, changed: Callable[[], None] | None = None) -> Node:
        """Return a znode. Raises NodeMissing if it does not exist. ``changed`` is called as by
        ``exists``.
        """
        watch = self._bells.watch("data", path, changed)
        data, stat = await self._again(path, self._client.get_async, path, watch=watch)
        return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner or 0)

    async def children(self, path: str, changed: Callable[[], None] | None = None) -> Children:
        """Return the children of a znode. Raises NodeMissing if the znode does not exist.
        ``changed`` is called once: after a child is created or deleted, after the znode is deleted,
        or when the session ends.
        """
        watch = self._bells.watch("children", path, changed)
        names, stat = await self._again(
            path, self._client.get_children_async, path, watch=watch, include_data=True
        )
        return Children(tuple(sorted(names)), stat.pzxid)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a znode and its missing parents. Raises NodeExists if the znode exists."""
        _require_small(path, data)
        again = False
        while True:
            try:
                await self._once(path, self._client.create_async, path, data, ephemeral=ephemeral)
                return
            except NodeMissing:
                await self.ensure(path.rpartition("/")[0])
            except NodeExists:
                if not (again and await self._is_mine(path, data, ephemeral)):
                    raise
                return
            except _Dropped:
                again = True
                await asyncio.sleep(RETRY_S)

    async def ensure(self, path: str) -> None:
        """Create a znode and its parents, if they do not exist."""
        if path:
            with contextlib.suppress(NodeExists):
                await self.create(path)

    async def set(self, path: str, data: bytes, version: int) -> None:
        """Replace the content of a znode. Raises NodeChanged if the znode has another version, and
        NodeMissing if it does not exist.
        """
        _require_small(path, data)
        again = False
        while True:
            try:
                await self._once(path, self._client.set_async, path, data, version)
                return
            except NodeChanged:
                if not again:
                    raise
                node = await self.get(path)
                if (node.data, node.version) != (data, version + 1):
                    raise
                return
            except _Dropped:
                again = True
                await asyncio.sleep(RETRY_S)

    async def delete(self, path: str, node: Node | None = None) -> None:
        """Delete a znode. If ``node`` is given, delete it only if it has not changed since it was
        read. Raises NodeChanged if it has changed, NodeMissing if it does not exist, and
        NodeNotEmpty if it has children.
        """
        version = _ANY_VERSION if node is None else node.version
        again = False
        while True:
            try:
                await self._once(path, self._client.delete_async, path, version)
                return
            except NodeMissing:
                if not again:
                    raise
                return
            except _Dropped:
                again = True
                await asyncio.sleep(RETRY_S)
                if node is not None and await self._is_gone(path, node):
                    return

    async def _is_gone(self, path: str, node: Node) -> bool:
        """Return True if the znode that was read has been deleted. The version does not show this:
        if another client has created the znode again, the version of the new znode begins at 0 too.
        """
        try:
            return (await self.get(path)).created_in != node.created_in
        except NodeMissing:
            return True

    async def take_over(self, path: str, node: Node) -> None:
        """Replace an ephemeral znode of another session by a znode of this session with the same
        data, in one transaction.

        Raises NodeChanged or NodeMissing if the znode has changed.
        """

        def commit() -> Any:
            transaction = self._client.transaction()
            transaction.delete(path, node.version)
            transaction.create(path, node.data, acl=access_list(self._settings), ephemeral=True)
            return transaction.commit_async()

        while True:
            try:
                results = await self._once(path, commit)
            except _Dropped:
                await asyncio.sleep(RETRY_S)
                if await self._is_mine(path, node.data, True):
                    return
                continue
            refused = next(filter(None, (refusal(path, result) for result in results)), None)
            if refused is not None:
                raise refused
            return

    async def transact(self, *operations: Operation) -> None:
        """Execute all operations, or none.

        Raises TransactionRefused if one of them fails. Raises OutcomeUnknown if the connection
        breaks. The session does not repeat the transaction, because only the caller knows whether
        this is safe.
        """
        size = sum(map(size_of, operations))
        if size > MAX_REQUEST_BYTES:
            raise RequestTooLarge(
                f"{operations[0].path}: a transaction has {size} bytes; a server accepts "
                f"{MAX_REQUEST_BYTES}"
            )
        try:
            answers = await self._once(operations[0].path, sender(self._client, operations))
        except _Dropped:
            raise OutcomeUnknown(f"{self._settings.address}: the connection broke") from None
        check_answers(operations, answers)

    async def _is_mine(self, path: str, data: bytes, ephemeral: bool) -> bool:
        """Return True if the znode has the data and the owner that our unanswered call would have
        written.
        """
        try:
            node = await self.get(path)
        except NodeMissing:
            return False
        return node.data == data and node.owner == (self.id if ephemeral else 0)

    async def _again(self, path: str, start: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Make a call that changes nothing, and repeat it until it is answered."""
        while True:
            try:
                return await self._once(path, start, *args, **named)
            except _Dropped:
                await asyncio.sleep(RETRY_S)

    async def _once(self, path: str, start: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Make a call once. Raises an error of ``zookeeper_errors``, or ``_Dropped`` if the outcome
        is unknown.
        """
        async with self._room:
            ended = self.why_ended
            if ended is not None:
                raise type(ended)(str(ended))
            with self._future() as future:
                self._count()
                sent = self._loop.time()
                start(*args, **named).rawlink(partial(self._cross, future))
                error, answer = await future
            if error is not None:
                raise self._translated(path, error, sent)
            self._answered(sent)
            return answer

    @contextlib.contextmanager
    def _future(self) -> Iterator[asyncio.Future[Any]]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(future)
        try:
            yield future
        finally:
            self._waiting.discard(future)

    def _cross(self, future: asyncio.Future[Any], result: Any) -> None:
        """Pass an answer to the loop. Called on a thread of kazoo."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_settle, future, result)

    def _answered(self, sent: float) -> None:
        if self._good_until != float("inf"):
            self._good_until = max(self._good_until, sent + self._timeout_s)

    def _translated(self, path: str, error: Exception, sent: float) -> Exception:
        if isinstance(error, _DROPPED):
            return _Dropped()
        if isinstance(error, _ENDED):
            if not self._ended.done():
                self._lose("the server has ended it")
            ended = self._ended.result()
            return type(ended)(str(ended))
        self._answered(sent)
        other = ZooKeeperError(f"{path}: {type(error).__name__} {error}".rstrip())
        return refusal(path, error) or other


class _Dropped(Exception):
    """The connection was lost between a request and its answer."""


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # cancelled, or the session has ended
        return
    future.set_result((result.exception, result.value))


def _require_small(path: str, data: bytes) -> None:
    size = len(path.encode()) + len(data)
    if size > MAX_REQUEST_BYTES:
        raise RequestTooLarge(
            f"{path[:60]}...: path and value have {size} bytes; a server accepts "
            f"{MAX_REQUEST_BYTES}"
        )
