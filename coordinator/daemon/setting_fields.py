"""Declare the settings of the daemon: their sections, and those that the coordinator has too."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from groupkeeper.coordinator.core.bounds import bounds_of
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig

COORDINATORS_NAME: Final = "coordinators_name"
"""In a setting's JSON schema, the key for the name of the setting in ``CoordinatorConfig``."""

_BOUNDS = bounds_of(CoordinatorConfig)
_DEFAULTS = {each.name: each.default for each in fields(CoordinatorConfig)}


def coordinators_setting(name: str, *, description: str, **own: int) -> Any:
    """Declare a setting that ``CoordinatorConfig`` has too, under ``name``. Its default and its
    bounds are those of ``CoordinatorConfig``. Raises KeyError if a number has no bounds there.

    ``own`` replaces the default or bounds that differ in a daemon.
    """
    declared: dict[str, Any] = {"default": _DEFAULTS[name]}
    if name in _BOUNDS or type(declared["default"]) is int:
        declared["ge"], declared["le"] = _BOUNDS[name]
    declared |= own
    return Field(description=description, json_schema_extra={COORDINATORS_NAME: name}, **declared)


class Section(BaseModel):
    """The base class of the sections. An unknown key is an error."""

    # built at the first use, within Settings. Otherwise a start would build it twice.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
