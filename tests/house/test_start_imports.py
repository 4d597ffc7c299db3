"""A start imports what a daemon needs: after a crash all groups wait for it.

``bench/start_bench.py`` has what it costs.
"""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.printed_docs import ROOT

SERVE_IMPORTS = """
import sys
sys.argv = ["groupkeeper", "serve", "--help"]
from coordinator.__main__ import main
try:
    main()
except SystemExit:
    import coordinator.app
print("\\n" + " ".join(sys.modules))
"""

NOT_NEEDED = {
    "aiokafka": "its codecs are for versions that hardly any client speaks",
    "confluent_kafka": "is for commands",
    "coordinator.cli.group": "is another command",
    "coordinator.cli.log": "is another command",
    "coordinator.cli.pipeline": "is another command",
    "coordinator.commit_log": "is for hosts that embed us",
    "kafka": "is for commands",
    "pipeline": "is beside the daemon",
    "prometheus_client": "is imported by the thread of the first scrape",
    "pyspark": "is beside the daemon",
    "rich.console": "draws what no daemon prints",
}


def test_a_start_imports_nothing_that_no_daemon_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE_IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "coordinator.app" in imported
    assert not imported & NOT_NEEDED.keys()


def test_the_collector_looks_again_once_the_daemon_runs() -> None:
    asks = """
import gc
from coordinator.__main__ import import_less
from coordinator.process import calm_collector
import_less()
assert not gc.isenabled()
calm_collector()
print(gc.isenabled())
"""
    done = subprocess.run(
        [sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"]
