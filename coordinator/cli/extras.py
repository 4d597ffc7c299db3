"""The extras of this distribution, and the packages in each.

``pyproject.toml`` names the distributions, ``docs/start/installing.md`` explains each extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

from groupkeeper.storage.installing import how_to_install

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


def lacking(extra: Extra) -> str | None:
    """Return one line if packages of the extra are missing: their names, and the command to install
    them. Return None if all are installed.
    """
    missing = [name for name in BRINGS[extra] if find_spec(name) is None]
    if not missing:
        return None
    return f"{', '.join(missing)}: not installed; run: {how_to_install(extra)}"
