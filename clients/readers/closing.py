"""Objects that must be closed, and whose close raises every error that no other call has raised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Base class with ``close`` and ``async with``. Both raise the errors that no other call has
    raised.
    """

    @abstractmethod
    async def close(self) -> None:
        """End all work. If there are errors that no other call has raised, raise them in an
        ExceptionGroup.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except ExceptionGroup as met:
            if isinstance(error, Exception):  # like a TaskGroup: no error hides another
                raise ExceptionGroup(met.message, [error, *met.exceptions]) from None
            raise


def raise_all(errors: list[Exception], message: str = "readers met errors") -> None:
    """Raise the errors in one flat ExceptionGroup. Do nothing if there are none."""
    if errors:
        raise ExceptionGroup(message, _flat(errors))


def _flat(errors: list[Exception] | tuple[Exception, ...]) -> list[Exception]:
    found: list[Exception] = []
    for error in errors:
        found.extend(_flat(error.exceptions) if isinstance(error, ExceptionGroup) else [error])
    return found
