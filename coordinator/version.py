"""The version of this distribution; ``pyproject.toml`` says the same, and a test compares them."""

from __future__ import annotations

VERSION = "0.2.0.dev1"
