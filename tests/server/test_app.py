"""The daemon as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.daemon.daemon import ROOT, Daemon
from tests.helpers.wire.raw_client import RawClient

pytestmark = pytest.mark.slow


@pytest.fixture
def make(tmp_path):
    """Make daemons that end with the test."""
    made: list[Daemon] = []

    def make_daemon(name: str = "daemon", **options: Any) -> Daemon:
        made.append(Daemon(tmp_path / name, **options))
        return made[-1]

    yield make_daemon
    for daemon in made:
        daemon.stop()


def log_of(daemon: Daemon) -> list[dict[str, Any]]:
    """The log, which is one JSON object a line and nothing else."""
    return [json.loads(line) for line in daemon.log.splitlines()]


def wait_for_log(daemon: Daemon, event: str) -> dict[str, Any]:
    for _ in range(500):
        for line in log_of(daemon):
            if line["event"] == event:
                return line
        time.sleep(0.02)
    raise AssertionError(f"no {event!r} in\n{daemon.log}")


def refused(daemon: Daemon, code: int = 1) -> str:
    """Start what cannot start: its exit code, and the last line that says why."""
    daemon.launch()
    assert daemon.wait() == code, daemon.log
    assert "Traceback" not in daemon.log
    *_, line = log_of(daemon)
    assert (line["event"], line["level"]) == ("start_failed", "critical")
    reason = line["reason"]
    assert isinstance(reason, str)
    return reason


def test_topics_with_too_many_partitions_in_all_are_refused_in_one_line(make):
    reason = refused(make(topics={"a": 60_000, "b": 60_000}))
    assert reason == "topic 'b' of the config: More than 100000 partitions in all."


@pytest.mark.parametrize("storage_url", ["memory:", None])
def test_a_daemon_starts_answers_on_both_ports_and_ends_with_0(make, storage_url):
    daemon = make(storage_url=storage_url, topics={"orders": 12}).start()
    assert daemon.get("/healthz") == (200, "ok\n")
    assert daemon.get("/readyz") == (200, "ready\n")
    host, port = daemon.bootstrap.split(":")
    socket.create_connection((host, int(port)), timeout=10).close()
    assert daemon.metric("groupkeeper_ready") == 1
    assert daemon.metric("groupkeeper_connections_accepted_total") == 1
    assert daemon.terminate() == 0
    assert [line["event"] for line in log_of(daemon)][-2:] == ["stopping", "stopped"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_daemon_with_closed_standard_streams_starts_and_ends_with_0(make, closed):
    """Without the third it did not start. Without another, libuv aborted it at its end."""
    daemon = make(topics={"orders": 1})
    program = f'exec "{sys.executable}" -m groupkeeper "$@" {closed}'
    daemon.python, daemon.entry = "sh", ("-c", program, "sh")
    daemon.start()
    assert daemon.terminate() == 0


def test_sigint_ends_it_as_sigterm_does(make):
    daemon = make(storage_url="memory:").start()
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0


def test_a_signal_that_arrives_twice_is_one_signal(make):
    """``make run`` and many supervisors signal the process and its group."""
    daemon = make(storage_url="memory:").start()
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_sigterm_answers_a_parked_join_not_coordinator_and_exits_0(make):
    daemon = make(topics={"orders": 1}, settings={"group.initial_rebalance_delay_ms": 60_000})
    daemon.start()
    with RawClient(int(daemon.bootstrap.split(":")[1])) as client:
        parked = client.send(
            "join_group",
            3,
            group_id="billing",
            member_id="",
            protocol_type="consumer",
            session_timeout=10_000,
            rebalance_timeout=120_000,
            protocols=[{"name": "range", "metadata": b""}],
        )
        with RawClient(int(daemon.bootstrap.split(":")[1])) as other:
            for _ in range(200):
                groups = other.call("list_groups", 4)["groups"]
                if [group["group_state"] for group in groups] == ["PreparingRebalance"]:
                    break
                time.sleep(0.02)
            else:
                raise AssertionError(f"the join is not parked: {groups}")
        daemon.signal(signal.SIGTERM)
        assert client.receive("join_group", 3, parked)["error_code"] == ErrorCode.NOT_COORDINATOR
    assert daemon.wait() == 0


def test_the_ready_line_says_where_everything_is(make):
    daemon = make().start()
    ready = wait_for_log(daemon, "ready")
    assert ready["kafka"] == daemon.bootstrap
    assert ready["http"] == daemon.settings["http.listen"]
    assert ready["storage"] == f"sqlite:///{daemon.directory}/groupkeeper.db"


def test_a_clean_end_leaves_one_file_without_a_write_ahead_log(make):
    daemon = make(topics={"orders": 1}).start()
    daemon.terminate()
    left = {path.name for path in daemon.directory.glob("groupkeeper.db*")}
    assert left - {"groupkeeper.db.lock", "groupkeeper.db.sealing.lock"} == {"groupkeeper.db"}


def test_topics_of_the_config_survive_kill_9_and_grow_with_it(make):
    daemon = make(topics={"orders": 3}).start()
    daemon.kill()
    daemon.topics["orders"] = 5
    daemon.start()
    daemon.terminate()
    with sqlite3.connect(daemon.directory / "groupkeeper.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()
    assert "damaged" not in daemon.log


def test_sighup_reads_the_log_level_again_and_names_what_needs_a_restart(make):
    daemon = make(storage_url="memory:").start()
    daemon.settings |= {"logging.level": "debug", "kafka.node_id": 9}
    daemon.write_config()
    daemon.signal(signal.SIGHUP)
    line = wait_for_log(daemon, "settings_reloaded")
    assert line["log_level"] == "debug"
    assert line["needs_restart"] == ["kafka.node_id"]
    host, port = daemon.bootstrap.split(":")
    socket.create_connection((host, int(port)), timeout=10).close()
    assert daemon.terminate() == 0


def test_sighup_puts_the_new_log_level_in_force(make):
    daemon = make(storage_url="memory:").start()
    daemon.settings["logging.level"] = "warning"
    daemon.write_config()
    daemon.signal(signal.SIGHUP)
    wait_for_log(daemon, "settings_reloaded")
    assert daemon.terminate() == 0
    assert {line["event"] for line in log_of(daemon)}.isdisjoint({"stopping", "stopped"})


def test_sighup_with_wrong_settings_changes_nothing(make):
    daemon = make(storage_url="memory:").start()
    daemon.settings["kafka.listn"] = "x"
    daemon.write_config()
    daemon.signal(signal.SIGHUP)
    line = wait_for_log(daemon, "settings_not_reloaded")
    assert "did you mean listen?" in line["problems"][0]
    assert daemon.get("/readyz")[0] == 200


def test_a_second_daemon_on_the_same_database_is_refused_and_the_first_goes_on(make):
    first = make("first").start()
    second = make("second", storage_url=first.settings["storage.url"])
    line = refused(second)
    assert f"{first.directory}/groupkeeper.db" in line
    assert "in use" in line
    assert first.get("/readyz")[0] == 200


@pytest.mark.parametrize("setting", ["kafka.listen", "http.listen"])
def test_a_port_in_use_is_refused_by_the_name_of_its_setting(make, setting):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        line = refused(make(storage_url="memory:", settings={setting: taken}))
    assert line.startswith(f"{setting} = {taken}: cannot listen there (Address already in use)")


def test_one_address_for_both_ports_is_refused_in_one_line(make):
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = f"127.0.0.1:{other.getsockname()[1]}"
    line = refused(
        make(storage_url="memory:", settings={"kafka.listen": free, "http.listen": free})
    )
    assert line.startswith(f"kafka.listen = {free}: cannot listen there (Address already in use)")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("kafka://localhost", "use kafka://HOST:PORT,HOST:PORT/TOPIC"),
        ("mongodb://localhost", "names no storage"),
        ("sqlite:////no/such/directory/g.db", "the directory does not exist"),
    ],
)
def test_a_store_that_cannot_be_opened_is_refused_in_one_line(make, url, problem):
    assert problem in refused(make(storage_url=url))


def test_what_is_no_database_is_refused_in_one_line_and_left_alone(make, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not a database\n" * 100)
    assert f"storage.url: {file}" in refused(make(storage_url=f"sqlite:///{file}"))
    assert file.read_text() == "not a database\n" * 100


def test_a_store_with_a_row_from_a_later_version_is_refused_by_the_name_of_the_row(make):
    daemon = make(topics={"orders": 1}).start()
    daemon.terminate()
    daemon.log_file.unlink()
    database = daemon.directory / "groupkeeper.db"
    with sqlite3.connect(database) as connection:
        connection.execute('UPDATE keyed SET record = \'{"record":"of_a_later_version"}\'')
    connection.close()
    line = refused(daemon)
    assert line.startswith(f"storage.url: {database}: row 'topic/orders' of table keyed: ")
    assert line.endswith("run that version, or restore the last backup")


def test_a_store_of_another_cluster_is_refused(make):
    first = make().start()
    first.terminate()
    first.settings["kafka.cluster_id"] = "another"
    first.log_file.unlink()
    assert "cluster" in refused(first)


def test_wrong_settings_exit_2_before_anything_is_opened(make):
    daemon = make(settings={"kafka.workers": 2})
    assert "kafka.workers: no such key; " in refused(daemon, 2)
    assert len(log_of(daemon)) == 1
    assert not (daemon.directory / "groupkeeper.db").exists()


NO_RIGHTS_OF_ROOT = """
import ctypes, os, sys
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24
for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to who is not root
os.execv(sys.executable, [sys.executable, "-m", "groupkeeper", "serve", "--config", *sys.argv[1:]])
"""
"""Runs a daemon that no file opens itself to but by its mode."""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        ("a directory", "Is a directory"),
        ("no permission", "let the user that runs groupkeeper read it"),
        (b"# \xe9", "not UTF-8"),
        (b"[kafka", "not valid TOML"),
        (b"[kafka]\nlistn = 'h:1'", "kafka.listn: no such key; did you mean listen?"),
        (b"[kafka]\nnode_id = '7'", "kafka.node_id: input should be a valid integer"),
        (b"[kafka]\nnode_id = -1", "kafka.node_id: must be at least 0, not -1"),
        (b"[kafka]\nworkers = 2", "kafka.workers: no such key"),
    ],
)
def test_a_start_that_fails_over_its_config_file_names_it_in_a_last_line_of_json(
    tmp_path, content, problem
):
    file = tmp_path / "groupkeeper.toml"
    match content:
        case "a directory":
            file.mkdir()
        case "no permission":
            file.touch(mode=0o000)
        case bytes():
            file.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", NO_RIGHTS_OF_ROOT, str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    line = json.loads(done.stderr.splitlines()[-1])
    assert (line["event"], line["level"]) == ("start_failed", "critical")
    assert line["reason"].startswith(f"{file}: ")
    assert problem in line["reason"]


def test_port_0_lets_the_system_choose_and_the_ready_line_tells(make):
    daemon = make(storage_url="memory:", settings={"kafka.listen": "127.0.0.1:0"}).start()
    host, port = wait_for_log(daemon, "ready")["kafka"].split(":")
    socket.create_connection((host, int(port)), timeout=10).close()


def test_the_console_form_is_for_people(make):
    daemon = make(storage_url="memory:", settings={"logging.format": "console"}).start()
    daemon.terminate()
    assert "ready" in daemon.log
    assert not any(line.startswith("{") for line in daemon.log.splitlines())


def test_a_start_that_fails_says_so_to_people_in_the_console_form(make):
    daemon = make(storage_url="mongodb://localhost", settings={"logging.format": "console"})
    daemon.launch()
    assert daemon.wait() == 1
    assert daemon.log.splitlines()[-1].startswith("groupkeeper: storage.url")


def test_every_metric_that_is_defined_is_shown_by_a_daemon_on_sqlite(make):
    from groupkeeper.coordinator.daemon.metrics import DEFINITIONS

    daemon = make(topics={"orders": 1}).start()
    page = daemon.get("/metrics")[1]
    ours = [d for d in DEFINITIONS if not d.name.startswith("upstream_")]  # gateway mode has those
    missing = [d.full_name for d in ours if f"# TYPE {d.full_name}" not in page]
    # counters are declared without their suffix in this format's older form
    assert [name for name in missing if name.removesuffix("_total") not in page] == []


def test_the_soft_limit_of_open_files_is_raised_to_what_the_connections_need(make):
    daemon = make(storage_url="memory:", settings={"kafka.max_connections": 3000})
    code = (
        "import resource, os, sys; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1];"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); os.execv(sys.executable,"
        f" [sys.executable, '-m', 'groupkeeper', 'serve', '--config', {str(daemon.config_file)!r}])"
    )
    daemon.write_config()
    with daemon.log_file.open("ab") as log:
        daemon.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=daemon.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    daemon.wait_ready()
    limits = Path(f"/proc/{daemon.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(line.split()[3]) >= 3000
