"""The names of the settings: in the file, in the environment, and in the coordinator's config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.setting_fields import COORDINATORS_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

ENV_PREFIX = "GROUPKEEPER_"
ENV_DELIMITER = "__"


def setting_names() -> Iterator[str]:
    """Yield ``section.key`` of every setting, in the order of the documentation."""
    for section, key, _ in _fields():
        yield f"{section}.{key}"


def coordinators_names() -> dict[str, str]:
    """Return the settings that ``CoordinatorConfig`` has too: ``section.key`` -> its name there."""
    return {
        f"{section}.{key}": str(field.json_schema_extra[COORDINATORS_NAME])
        for section, key, field in _fields()
        if isinstance(field.json_schema_extra, dict)
    }


def variable_of(name: str) -> str:
    """Return the environment variable of ``section.key``."""
    return ENV_PREFIX + name.upper().replace(".", ENV_DELIMITER)


def _fields() -> Iterator[tuple[str, str, FieldInfo]]:
    for section, declared in Settings.model_fields.items():
        assert isinstance(declared.annotation, type)
        assert issubclass(declared.annotation, BaseModel)
        for key, field in declared.annotation.model_fields.items():
            yield section, key, field
