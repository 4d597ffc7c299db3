"""A start imports what a daemon needs: after a crash all groups wait for it.

``bench/start_bench.py`` has what it costs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.printed.printed_docs import ROOT

NOT_NEEDED = {
    "aiokafka": "its codecs are for versions that hardly any client speaks",
    "click": "is uvicorn's own command line",
    "confluent_kafka": "is for commands",
    "groupkeeper.clients": "is for programs without a coordinator",
    "groupkeeper.coordinator.cli.group": "is another command",
    "groupkeeper.coordinator.cli.log": "is another command",
    "groupkeeper.coordinator.cli.pipeline.commands": "is another command",
    "groupkeeper.coordinator.embed.commit_log": "is for hosts that embed us",
    "groupkeeper.coordinator.embed.consumer_messages": "is for hosts that embed us",
    "groupkeeper.coordinator.embed.group_coordinator": "is for hosts that embed us",
    "groupkeeper.coordinator.embed.group_metadata": "is for hosts that embed us",
    "groupkeeper.coordinator.embed.messages": "is for hosts that embed us",
    "hypothesis.core": "is for tests; kio imports it if it can",
    "httpx2": "is for programs without a coordinator",
    "kafka": "is for commands",
    "kazoo": "is for programs without a coordinator",
    "kio.serial": "reads and writes what our reader and writer do",
    "groupkeeper.pipeline": "is beside the daemon",
    "prometheus_client": "is imported by the thread of the first scrape",
    "pydantic_settings": "reads what a few lines of ours read",
    "pyspark": "is beside the daemon",
    "rich.console": "draws what no daemon prints",
    "starlette": "answers the HTTP port, beside the work",
    "re2": "is imported at the first pattern",
    "groupkeeper.storage.event_log.reader": "reads what hosts and commands ask for",
    "groupkeeper.storage.backends.memory": "is another backend",
    "groupkeeper.storage.event_log.sealing.work": "is imported by the process that seals",
    "uvicorn": "answers the HTTP port, beside the work",
}

PLUGIN_SETTING = {"PYDANTIC_DISABLE_PLUGINS"}
"""The environment of a test may have it; a daemon's has not."""


def imported_until_ready(directory: Path) -> set[str]:
    """Start a daemon that tells what it imports, and end it at its line ``ready``."""
    environment = os.environ | {
        "GROUPKEEPER_KAFKA__LISTEN": "127.0.0.1:0",
        "GROUPKEEPER_HTTP__LISTEN": "127.0.0.1:0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-X", "importtime", "-m", "groupkeeper", "serve"]
    daemon = subprocess.Popen(
        command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert daemon.stderr is not None
    imported, log = set(), []
    for line in daemon.stderr:
        if line.startswith("import time:"):
            imported.add(line.rpartition("|")[2].strip())
            continue
        log.append(line)
        if json.loads(line)["event"] == "ready":
            break
    daemon.kill()
    daemon.communicate()
    assert daemon.returncode == -9, log
    return imported


def test_a_start_imports_nothing_before_ready_that_no_start_needs(tmp_path: Path) -> None:
    imported = imported_until_ready(tmp_path)
    assert {
        "groupkeeper.coordinator.daemon.app",
        "groupkeeper.storage.event_log.sealing.process",
    } <= imported
    assert not imported & NOT_NEEDED.keys()


def test_a_start_does_not_look_for_plugins_of_pydantic() -> None:
    asks = """
from groupkeeper.__main__ import import_less
import_less()
from importlib import metadata
metadata.entry_points = lambda **_: 1 / 0
import groupkeeper.coordinator.cli.daemon
import groupkeeper.coordinator.daemon.app
print("imported")
"""
    environment = {name: value for name, value in os.environ.items() if name not in PLUGIN_SETTING}
    done = subprocess.run(
        [sys.executable, "-c", asks],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["imported"], done.stderr


def test_the_collector_looks_again_once_the_daemon_runs() -> None:
    asks = """
import gc
from groupkeeper.__main__ import import_less
from groupkeeper.coordinator.daemon.process import calm_collector
import_less()
assert not gc.isenabled()
calm_collector()
print(gc.isenabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"]


def test_the_process_that_seals_does_not_read_the_metadata_of_packages() -> None:
    """``importlib.metadata`` and the mail parser that it imports take 2 MiB of its memory."""
    asks = """
import sys
import groupkeeper.storage.seal
import groupkeeper.storage.event_log.sealing.work
import groupkeeper.storage.backends.sqlite.rows
print(*{"importlib.metadata", "email", "asyncio"} & sys.modules.keys())
"""
    done = subprocess.run(
        [sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
