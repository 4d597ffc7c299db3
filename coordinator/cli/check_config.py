"""Lists the values of all settings, and where each value comes from (``check-config``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from groupkeeper.coordinator.daemon.config import shown_storage_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from groupkeeper.coordinator.daemon.config_load import LoadedSettings


def describe(loaded: LoadedSettings) -> Iterator[str]:
    """Yield one line per setting: its name, its value, and where the value comes from."""
    content = loaded.settings.model_dump(mode="json")
    shown = {
        name: json.dumps(_whole(name, content[name.split(".")[0]][name.split(".")[1]]))
        for name in loaded.origins
    }
    left = max(len(f"{name} = {value}") for name, value in shown.items() if len(value) < 60)
    for name, origin in loaded.origins.items():
        yield f"{name} = {shown[name]}".ljust(left) + f"  # {origin}"


def _whole(name: str, value: object) -> object:
    if name == "storage.url":
        return shown_storage_url(str(value))
    if name == "log.dir":
        return str(Path(str(value)).absolute())
    return value
