"""Drawn mutants that no test can catch, because they change nothing; each with its proof.

The key is file, function and change. When that code changes, the run asks for another look.
"""

from __future__ import annotations

from typing import Final

EQUIVALENTS: Final[dict[str, str]] = {}
