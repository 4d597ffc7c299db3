"""A real PostgreSQL that the tests start themselves, durable as in production."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from groupkeeper.storage.codec.records import decode_payload, payload_events
from groupkeeper.storage.segment_lines import EventDict, decode_line

USER = "groupkeeper"
NOBODY = 65_534


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; None if it is not installed."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # the folder of Debian's packages
    found = shutil.which("initdb")
    folders = [*reversed(versions), *([Path(found).parent] if found else [])]
    wanted = ("initdb", "postgres", "pg_isready", "psql")
    for folder in folders:
        if all((folder / name).exists() for name in wanted):
            return folder
    return None


class RealPostgres:
    """One server with its own data folder. It does not run as root, so neither does this."""

    def __init__(self) -> None:
        folder = programs()
        assert folder is not None, "PostgreSQL is not installed"
        self._programs = folder
        self._home = Path(tempfile.mkdtemp(prefix="groupkeeper-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[int] = []
        self._as_nobody = {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}
        if self._as_nobody:
            os.chown(self._home, NOBODY, NOBODY)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        subprocess.run(
            [
                folder / "initdb",
                *("-D", self._home / "data", "-A", "trust", "-U", USER, "-E", "UTF8"),
                *("--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **self._as_nobody,
        )
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "fsync": "on",
        }
        options = [part for pair in settings.items() for part in ("-c", "=".join(pair))]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    "-D",
                    self._home / "data",
                    "-p",
                    str(self.port),
                    *options,
                ],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._as_nobody,
            )
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            assert self._process.poll() is None, (self._home / "log").read_text()
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server's first process."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends its connections, SIGQUIT stops it without a checkpoint."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(timeout=30)

    def restart(self) -> None:
        """Wait for the end of the server, and start it again over its data."""
        assert self._process is not None
        self._process.wait(timeout=30)
        self.start()

    def begin_tls(self) -> Path:
        """Let the server offer TLS from now on. Return its certificate, which is for localhost."""
        key, certificate = self._home / "server.key", self._home / "server.crt"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", key, "-out", certificate),
            ],
            check=True,
            capture_output=True,
        )
        key.chmod(0o600)
        if self._as_nobody:
            os.chown(key, NOBODY, NOBODY)
        for setting, value in (
            ("ssl_cert_file", certificate),
            ("ssl_key_file", key),
            ("ssl", "on"),
        ):
            command = [self._programs / "psql", "-X", self.url, "-c"]
            subprocess.run(
                [*command, f"ALTER SYSTEM SET {setting} = '{value}'"],
                check=True,
                capture_output=True,
            )
        self.sql("SELECT pg_reload_conf()")
        return certificate

    def stop_processes(self, pids: list[int]) -> None:
        """Suspend the server's first process and these processes with SIGSTOP."""
        assert self._process is not None
        self._stopped = [self._process.pid, *pids]
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def continue_processes(self) -> None:
        """Resume the processes that ``stop_processes`` suspended."""
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        """Stop the server and delete its data."""
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._home, ignore_errors=True)

    def sql(self, statement: str, schema: str = "public") -> list[dict[str, Any]]:
        """Run a query as a person would, and return its rows. A running loop waits for it."""
        wrapped = f"SELECT coalesce(json_agg(each), '[]') FROM ({statement}) AS each"
        done = subprocess.run(
            [self._programs / "psql", "-X", "-At", self.url, "-c", wrapped],
            env={**os.environ, "PGOPTIONS": f"-c search_path={schema}"},
            capture_output=True,
            check=True,
        )
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def events(self, schema: str) -> list[EventDict]:
        """Return all events of a store, in the log and in the journal."""
        events = [
            decode_line(row["event"].encode())
            for row in self.sql("SELECT event FROM event_log ORDER BY seq", schema)
        ]
        entries = (
            "SELECT first_seq, encode(payload, 'hex') AS payload FROM journal ORDER BY first_seq"
        )
        for row in self.sql(entries, schema):
            payload = decode_payload(bytes.fromhex(row["payload"]))
            events += payload_events(row["first_seq"], payload)
        return events
