"""Run the tests of the hot path on an installed wheel, away from the sources of the checkout.

    python -P tests/conformance/installed_wheel.py

It ends with 1 if a module that should be compiled is not. docs/contribute/wheels.md has the steps.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("tests", "deploy", "docs", "examples")
FILES = ("pyproject.toml", "README.md", "LICENSE", "config.example.toml", "constraints.txt")
TESTS = (
    "tests/unit/coordinator/core",
    "tests/unit/coordinator/handlers",
    "tests/unit/coordinator/runtime",
    "tests/unit/protocol",
    "tests/scenarios",
    "tests/wire",
    "tests/server/test_connection.py",
    "tests/embedding",
)


def not_compiled() -> list[str]:
    """Return the modules of the list in ``pyproject.toml`` that are not compiled."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    found = []
    for path in hooks["mypyc"]["include"]:
        name = path.removesuffix(".py").replace("/", ".")
        file = str(importlib.import_module(name).__file__)
        if not file.endswith(suffix) or Path(file).is_relative_to(ROOT):
            found.append(f"{name}: {file}")
    return found


def main() -> int:
    """Check what is installed, and run the tests in a directory without sources."""
    sources = not_compiled()
    if sources:
        sys.exit("\n".join(["not the installed and compiled module:", *sources]))
    with tempfile.TemporaryDirectory() as directory:
        for name in NEEDED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, Path(directory) / name, ignore=ignored)
        for name in FILES:
            shutil.copy(ROOT / name, directory)
        quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
        return subprocess.run(
            [sys.executable, "-m", "pytest", *quiet, "-n", os.environ.get("WORKERS", "2"), *TESTS],
            cwd=directory,
            env=os.environ | {"TESTS_OF_COMPILED": "1"},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
