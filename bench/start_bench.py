"""Measure what a start costs: the imports of the daemon, and all work until READY.

    python -m bench.start_bench [rounds]

It prints medians of the CPU time of new processes, beside an interpreter that does nothing. Modules
are compiled before, as in an installation, even if PYTHONDONTWRITEBYTECODE is set. Compiling them
at each start would add half of the time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

IMPORTS = """
import time
from groupkeeper.__main__ import import_less
import_less()
import groupkeeper.coordinator.cli.plain_text
import groupkeeper.coordinator.cli.daemon
import groupkeeper.coordinator.daemon.app
import groupkeeper.storage.event_log.sealing.storage
print(time.process_time())
"""
NOTHING = "import time; print(time.process_time())"
DEFAULT_ROUNDS = 10


def keep_bytecode(directory: str) -> None:
    """Make all child processes use compiled modules, in a temporary directory."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = directory


def cpu_s(code: str) -> float:
    """Run code in a new interpreter. Return its CPU time at the end of the code."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def until_ready() -> tuple[float, float]:
    """Start a daemon on an empty store. Return its seconds and CPU seconds until READY."""
    environment = os.environ | {
        "GROUPKEEPER_KAFKA__LISTEN": "127.0.0.1:0",
        "GROUPKEEPER_HTTP__LISTEN": "127.0.0.1:0",
    }
    command = [sys.executable, "-m", "groupkeeper", "serve"]
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        daemon = subprocess.Popen(
            command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True
        )
        assert daemon.stderr is not None
        try:
            for line in daemon.stderr:
                if json.loads(line)["event"] == "ready":
                    return time.monotonic() - began, _cpu_of(daemon.pid)
        finally:
            daemon.terminate()
            daemon.wait()
    raise AssertionError("the daemon did not start")


def _cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure by turns, and print medians."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROUNDS
    with tempfile.TemporaryDirectory() as bytecode:
        keep_bytecode(bytecode)
        until_ready()
        measure(rounds)


def measure(rounds: int) -> None:
    """Print the medians of some rounds."""
    imports, nothing, ready, cpu = [], [], [], []
    for _ in range(rounds):
        nothing.append(cpu_s(NOTHING))
        imports.append(cpu_s(IMPORTS))
        took, used = until_ready()
        ready.append(took)
        cpu.append(used)
    print(f"imports of serve      {statistics.median(imports):.3f} s of CPU")
    print(f"  an empty interpreter  {statistics.median(nothing):.3f} s of CPU")
    took, used = statistics.median(ready), statistics.median(cpu)
    print(f"start until READY     {took:.3f} s, {used:.3f} s of CPU")


if __name__ == "__main__":
    main()
