"""A real PgBouncer before a real PostgreSQL."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.helpers.storage.real_postgres import NOBODY, USER, RealPostgres


def _program() -> str:
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert found is not None, "PgBouncer is not installed (Debian: apt install pgbouncer)"
    return found


class RealPgBouncer:
    """One PgBouncer with a pool of two connections. ``ignored`` are the settings that it drops."""

    def __init__(self, server: RealPostgres, pool_mode: str, ignored: str) -> None:
        command = _program()
        self._home = Path(tempfile.mkdtemp(prefix="groupkeeper-pgbouncer-"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        users = self._home / "users"
        users.write_text(f'"{USER}" ""\n')
        config = self._home / "pgbouncer.ini"
        config.write_text(
            f"""[databases]
postgres = host=127.0.0.1 port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
auth_file = {users}
pool_mode = {pool_mode}
default_pool_size = 2
ignore_startup_parameters = extra_float_digits,{ignored}
"""
        )
        as_nobody = {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}
        if as_nobody:
            for path in (self._home, users, config):
                os.chown(path, NOBODY, NOBODY)
        config.write_text(
            config.read_text().replace("postgres = host", f"postgres = user={USER} host")
        )
        self.url = server.url.replace(str(server.port), str(self.port))
        self._process = subprocess.Popen(
            [command, "-q", config],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **as_nobody,
        )
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, "PgBouncer has ended"
            time.sleep(0.01)
        raise AssertionError("PgBouncer does not listen")

    def end(self) -> None:
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self._home, ignore_errors=True)
