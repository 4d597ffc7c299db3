"""``groupkeeper upstream resolve`` on a store in PostgreSQL that a daemon uses: it is refused."""

from __future__ import annotations

import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.core.group_view import commit, committed
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.storage.real_postgres import RealPostgres

pytestmark = pytest.mark.postgres

TOPIC = "orders"
LIMIT_S = 60


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_decision_beside_a_running_daemon_is_refused_and_disturbs_nobody(
    tmp_path: Path, postgres: RealPostgres, node_id: int
) -> None:
    """Also if the command's config names another node."""
    url = f"{postgres.url}?schema=s{uuid.uuid4().hex}"
    topics, settings = {TOPIC: 4}, {"kafka.node_id": 1}
    daemon = Groupkeeper(tmp_path / "daemon", storage_url=url, topics=topics, settings=settings)
    config = tmp_path / "gateway.toml"
    config.write_text(
        f'[storage]\nurl = "{url}"\n[kafka]\nnode_id = {node_id}\n'
        '[upstream]\nbootstrap = "127.0.0.1:1"\nports = "9100-9199"\n'
    )
    try:
        daemon.start()
        with RawClient(daemon.port) as client:
            assert commit(client, "g", TOPIC, {0: 1}) == {0: ErrorCode.NONE}
            command = [daemon.python, *daemon.entry, "upstream", "resolve", "--config", str(config)]
            ran = subprocess.run(
                [*command, "--decision", "abort", "--apply"],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT_S,
            )
            assert (ran.returncode, ran.stdout) == (1, "")
            assert "is in use by node 1" in ran.stderr
            assert "stop it first" in ran.stderr
            assert commit(client, "g", TOPIC, {0: 2}) == {0: ErrorCode.NONE}
            assert committed(client, "g") == {(TOPIC, 0): 2}
        assert daemon.log.count('"event": "loaded"') == 1
        assert daemon.metric("groupkeeper_storage_lease_lapses_total") == 0
    finally:
        daemon.stop()
