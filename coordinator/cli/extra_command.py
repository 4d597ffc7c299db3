"""Commands that need packages which not every installation has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand

from groupkeeper.coordinator.cli.extras import Extra, lacking
from groupkeeper.coordinator.cli.failing import USAGE, fail


class ExtraCommand(TyperCommand):
    """A command that needs optional packages (extras). If one is missing, it exits with USAGE
    before it does anything. Its help works without the packages.
    """

    needs: ClassVar[Sequence[Extra]]

    def invoke(self, ctx: Any) -> Any:
        for extra in self.needs:
            if (lack := lacking(extra)) is not None:
                fail(lack, USAGE)
        return super().invoke(ctx)


class AdminCommand(ExtraCommand):
    """A command that needs Kafka's clients."""

    needs: ClassVar[Sequence[Extra]] = ("admin",)
