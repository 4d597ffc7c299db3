"""kafka-python's message classes, imported without its warnings."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it calls importlib.resources.read_text
    from kafka.protocol import admin, consumer, metadata, producer

_MODULES = (admin, consumer, metadata, producer)


def message_class(name: str) -> Any:
    """Return the class of a request or response by its name, such as ``JoinGroupRequest``."""
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))
