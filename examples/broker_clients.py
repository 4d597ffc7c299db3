"""Two consumers and a producer at work on the broker of broker.py."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from broker import running

from groupkeeper import ErrorCode, GroupError


async def call(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], **what: Any) -> Any:
    reader, writer = streams
    writer.write(json.dumps(what).encode() + b"\n")
    answer = json.loads(await reader.readline())
    if "error" in answer:
        raise GroupError(ErrorCode[answer["error"]])
    return answer


async def consume(port: int, name: str, wanted: int, seen: dict[str, list[str]]) -> None:
    """Read until all consumers together have ``wanted`` messages. Rejoin after a rebalance."""
    streams = await asyncio.open_connection("127.0.0.1", port)
    me = await call(streams, do="join", group="billing", topic="orders")
    while sum(map(len, seen.values())) < wanted:
        try:
            for partition, offset, value in (await call(streams, do="poll", **me))["messages"]:
                here = {"partition": partition, "offset": offset + 1}
                who = {key: me[key] for key in ("group_id", "member_id", "generation_id", "topic")}
                await call(streams, do="commit", **who, **here)
                seen[name].append(value)
        except GroupError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            again = {"group": "billing", "topic": "orders", "member": me["member_id"]}
            me = await call(streams, do="join", **again)
        await asyncio.sleep(0.01)
    print(f"{name} has partitions {me['partitions']} and read {len(seen[name])} messages")
    await call(streams, do="leave", group_id="billing", member_id=me["member_id"])
    streams[1].close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder)) as port:
            seen: dict[str, list[str]] = {"ann": [], "bob": []}
            readers = [asyncio.create_task(consume(port, name, 40, seen)) for name in seen]
            streams = await asyncio.open_connection("127.0.0.1", port)
            for key in map(str, range(40)):
                await call(streams, do="produce", topic="orders", key=key, value=f"#{key}")
                await asyncio.sleep(0.01)
            await asyncio.gather(*readers)
            streams[1].close()
    everything = seen["ann"] + seen["bob"]
    print(f"{len(everything)} messages, each read once:", len(set(everything)) == 40)


if __name__ == "__main__":
    asyncio.run(main())
