"""The modules that mypyc compiles when the wheel is built."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from tests.helpers.printed.printed_docs import ROOT

_HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]

COMPILED: Final = tuple(Path(name) for name in _HOOKS["mypyc"]["include"])
"""The modules, from the root of the tree."""
