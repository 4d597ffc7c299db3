"""Finds the command that installs an extra of groupkeeper, for messages about a missing package.

groupkeeper is on no package index, so the command names a checkout. This module needs only the
standard library, because any other package may be missing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple


class _Source(NamedTuple):
    path: Path
    is_editable: bool


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra from the checkout of this distribution."""
    import shlex  # imported here: a daemon that lacks nothing does not wait for it

    source = _source()
    if source is None:
        return f"{sys.executable} -m pip install '.[{extra}]', in a checkout of groupkeeper"
    option = ["-e"] if source.is_editable else []
    return shlex.join([sys.executable, "-m", "pip", "install", *option, f"{source.path}[{extra}]"])


def _source() -> _Source | None:
    """Return the checkout from which groupkeeper was installed (PEP 610), or the one that contains
    this file. Return None if neither exists.
    """
    # imported here: a daemon that lacks nothing does not wait for these
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    home = Path(__file__).resolve().parents[1]
    try:
        source = json.loads(distribution("groupkeeper").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        source = {}
    url = urlsplit(source.get("url", ""))
    found = [_Source(home, is_editable=True)]
    if url.scheme == "file":
        is_editable = source.get("dir_info", {}).get("editable", False)
        found.insert(0, _Source(Path(unquote(url.path)), is_editable))
    return next((each for each in found if (each.path / "pyproject.toml").is_file()), None)
