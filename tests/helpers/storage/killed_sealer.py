"""A process that writes to a store in topics, seals its events, and kills itself at a step.

``python -m tests.helpers.storage.killed_sealer URL LOG_DIR STEP``: after four sealed commits, the
process is killed with SIGKILL when sealing next reaches the step.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.storage.backends.kafka_topic.store import KafkaTopicStorage
from groupkeeper.storage.backends.kafka_topic.url import parse_url
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from tests.helpers.core.records import commit
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import IDENTITY, Owner


async def main(url: str, directory: Path, step: str) -> None:
    is_armed = False

    def die(reached: str) -> None:
        if is_armed and reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    store = KafkaTopicStorage(
        parse_url(url, {}), node_id=1, name="killed", append_timeout_ms=5_000, lease_ttl_ms=1_000
    )
    settings = SealSettings(directory=directory, segment_bytes=1)
    owner = await Owner(SealedStorage(store, settings, poll_s=0.01, hook=die)).start()
    for offset in range(1_000):
        is_armed = offset >= 4
        for group in ("g", "other"):
            await owner.append(shard_of(group, IDENTITY.shards), [commit(group, offset)])
        if offset == 3:
            await until(
                lambda: owner.storage.stats()["sealed_seq"] == owner.storage.stats()["last_seq"]
            )
    raise AssertionError(f"sealing never reached {step}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
