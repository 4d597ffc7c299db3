"""``mypyc_attr``, a decorator that says how mypyc compiles a class. Without mypyc it does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: bool) -> Callable[[type], type]:
        """Return a decorator that does nothing. So a server does not need mypy_extensions."""
        return lambda kind: kind


__all__ = ("mypyc_attr",)
