"""A stranger with a fresh checkout and two terminals, who types what a document says.

Ports and directories are replaced, nothing else: the ports in every file of the copy, so that
defaults move with the documents; the working directory and the home by those of a test.
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
"""Those of the documents: the daemon's, and those of a second one beside it."""
NOT_COPIED = {".git", ".venv", "var", "tests", "__pycache__", "node_modules", "target"}
IS_DONE = "--- the terminal is ready again"


def commands(text: str) -> list[str]:
    """The blocks of a document that are typed into a shell."""
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Checkout:
    """A copy of the sources on ports of its own."""

    def __init__(self, home: Path) -> None:
        """Copy what a checkout has; ``home`` becomes the home of who works in it."""
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
        """A text with our ports in place of the documents'."""
        found = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda match: self.ports[match[1]], text)
        return found.encode(errors="surrogateescape")

    def read(self, name: str) -> str:
        """A document of the copy."""
        return (self.path / name).read_text()

    def daemons(self) -> list[int]:
        """The pids of the daemons that run in the copy."""
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
        """Open it in the checkout."""
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
        """Run a block and return what it printed; it must succeed to its last command."""
        self._write(block + f"\necho '{IS_DONE}'\n")
        return self._until(IS_DONE)

    def stay(self, block: str) -> str:
        """Run a block whose last command is the daemon; return when it serves."""
        self._write(block)
        return self._until('"event": "ready"')

    def close(self) -> None:
        """Press Ctrl-C, and wait until nothing runs here any more; ``said`` is what came then."""
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
