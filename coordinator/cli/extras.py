"""The extras of this distribution: the packages in each, and the command that installs it.

``pyproject.toml`` names the distributions, ``docs/start/installing.md`` explains each extra.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

Extra: TypeAlias = Literal[
    "server", "admin", "pipeline", "export", "zookeeper", "consul", "postgres"
]

_ADMIN: Final = ("kafka", "typer")

BRINGS: Final[dict[Extra, tuple[str, ...]]] = {
    "server": ("prometheus_client", "starlette", "typer", "uvicorn", "uvloop"),
    "admin": _ADMIN,
    "pipeline": (*_ADMIN, "pandas", "pyarrow", "pyspark"),
    "export": ("deltalake", "pyarrow", "pyiceberg", "sqlalchemy", "typer"),
    "zookeeper": ("kazoo",),
    "consul": ("cramjam", "httpx2"),
    "postgres": ("asyncpg",),
}
"""The packages of each extra, by import name."""


class _Source(NamedTuple):
    path: Path
    is_editable: bool


def lacking(extra: Extra) -> str | None:
    """Return one line if a package of the extra is missing: its name, and the command to install
    it.
    """
    missing = [name for name in BRINGS[extra] if find_spec(name) is None]
    if not missing:
        return None
    return f"{', '.join(missing)}: not installed; run: {_advice(extra)}"


def _advice(extra: Extra) -> str:
    import shlex

    source = _source()
    if source is None:
        return f"{sys.executable} -m pip install '.[{extra}]', in a checkout of groupkeeper"
    option = ["-e"] if source.is_editable else []
    return shlex.join([sys.executable, "-m", "pip", "install", *option, f"{source.path}[{extra}]"])


def _source() -> _Source | None:
    """Return the checkout that this was installed from (PEP 610), if it still exists."""
    # imported here: a daemon that lacks nothing does not wait for these
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    home = Path(__file__).resolve().parents[2]
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
