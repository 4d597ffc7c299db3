"""The modules that mypyc compiles when the wheel is built."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.helpers.printed.printed_docs import ROOT

_HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]

COMPILED: Final = tuple(Path(name) for name in _HOOKS["mypyc"]["include"])
"""The paths of the modules, relative to the root of the tree."""

BUILDS: Final = ROOT / "build" / "compiled"
KEPT: Final = 4
"""The number of builds that stay in ``BUILDS``: of this tree, of the guard's base, and earlier
ones.
"""

FOLDERS: Final = ("groupkeeper", "coordinator", "protocol", "storage", "pipeline", "clients")


def built(tree: Path) -> Path:
    """Return a folder with the compiled modules of a copy of the sources. Equal sources are
    compiled once.

    Do not call it for a checkout in which somebody works, because a build leaves files there.
    """
    place = BUILDS / _digest(tree)
    if not place.is_dir():
        BUILDS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILDS) as scratch:
            _build(tree, Path(scratch) / "wheels", Path(scratch) / "filled")
            if not place.is_dir():
                (Path(scratch) / "filled").rename(place)
    os.utime(place)
    others = sorted((p for p in BUILDS.iterdir() if len(p.name) == 64), key=_last_used)
    for other in others[:-KEPT]:
        shutil.rmtree(other, ignore_errors=True)
    return place


def _last_used(place: Path) -> float:
    return place.stat().st_mtime


def _digest(tree: Path) -> str:
    """Return a hash of all that a build depends on. mypyc reads the types of all sources."""
    tools = f"{sys.version} {version('mypy')} {version('hatch-mypyc')}"
    digest = hashlib.sha256(tools.encode())
    sources = [path for name in FOLDERS for path in (tree / name).rglob("*.py")]
    for path in sorted([tree / "pyproject.toml", *sources]):
        digest.update(str(path.relative_to(tree)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _build(tree: Path, wheels: Path, filled: Path) -> None:
    wheel = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(wheels), "."]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *wheel],
        cwd=tree,
        env=os.environ | {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    with zipfile.ZipFile(next(wheels.iterdir())) as made:
        made.extractall(filled, [name for name in made.namelist() if name.endswith(".so")])
