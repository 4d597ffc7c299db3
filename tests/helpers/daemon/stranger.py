"""A copy of the sources and terminals, in which tests type the commands of a document.

Only ports and directories are replaced. The ports are replaced in every file of the copy, also in
defaults. The working directory and the home directory are those of the test.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.helpers.daemon.daemon import STOP_LIMIT_S, free_port
from tests.helpers.printed.printed_docs import ROOT

PORTS = ("9092", "9308", "9192", "9408")
"""The ports in the documents: of the daemon, and of a second daemon beside it."""
NOT_COPIED = {".git", ".venv", "var", "tests", "__pycache__", "node_modules", "target"}
IS_DONE = "--- the terminal is ready again"


def commands(text: str) -> list[str]:
    """Return the blocks of a document with commands for a shell."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Checkout:
    """A copy of the sources with free ports."""

    def __init__(self, home: Path) -> None:
        """Copy the files of a checkout into a folder of ``home``, the home directory of
        its user.
        """
        self.home = home
        self.path = home / "checkout"
        self.ports = {port: str(free_port()) for port in PORTS}
        for top in ROOT.iterdir():
            if top.name in NOT_COPIED or top.name.startswith(".") or top.suffix == ".egg-info":
                continue
            if top.is_file():
                self.path.mkdir(parents=True, exist_ok=True)
                shutil.copy(top, self.path)
            else:
                ignored = shutil.ignore_patterns(*NOT_COPIED, "*.so")
                shutil.copytree(top, self.path / top.name, ignore=ignored, symlinks=True)
        for file in self.path.rglob("*"):
            if file.is_file():
                text = file.read_bytes()
                file.write_bytes(self.moved(text.decode(errors="surrogateescape")))

    def moved(self, text: str) -> bytes:
        """Return a text with the ports of this copy in place of those of the documents."""
        found = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda match: self.ports[match[1]], text)
        return found.encode(errors="surrogateescape")

    def read(self, name: str) -> str:
        """Return the text of a document of the copy."""
        return (self.path / name).read_text()

    def daemons(self) -> list[int]:
        """Return the pids of the daemons that run in the copy."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                place = (process / "cwd").readlink()
            except OSError:
                continue
            if b"serve" in arguments and place.is_relative_to(self.path):
                found.append(int(process.name))
        return found


class Terminal:
    """A shell that keeps its directory and its variables from one block to the next."""

    def __init__(self, checkout: Checkout, **environment: str) -> None:
        """Open the shell in the checkout."""
        kept = ("PATH", "LANG", "TMPDIR", "JAVA_HOME", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
        inherited = {n: v for n, v in os.environ.items() if n in kept or n.startswith("PIP_")}
        self.said = ""
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-e"],
            cwd=checkout.path,
            env={**inherited, "HOME": str(checkout.home), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, block: str) -> str:
        """Run a block, and return what it printed. Fails if one of its commands fails."""
        self._write(block + f"\necho '{IS_DONE}'\n")
        return self._until(IS_DONE)

    def stay(self, block: str) -> str:
        """Run a block whose last command is the daemon. Wait until the daemon is ready."""
        self._write(block)
        return self._until('"event": "ready"')

    def close(self) -> None:
        """Send Ctrl-C, and wait for the end of all programs. ``said`` is the output from
        then on.
        """
        if self._shell.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._shell.pid, signal.SIGINT)
            self.said, _ = self._shell.communicate(timeout=STOP_LIMIT_S)

    def _write(self, block: str) -> None:
        assert self._shell.stdin is not None
        # braces: a command that reads standard input must not read the next block
        self._shell.stdin.write(f"{{\n{block}\n}} < /dev/null\n")
        self._shell.stdin.flush()

    def _until(self, sign: str) -> str:
        printed = ""
        assert self._shell.stdout is not None
        while line := self._shell.stdout.readline():
            if sign in line:
                return printed
            printed += line
        raise AssertionError(f"it ended before it said {sign!r}:\n{printed}")
