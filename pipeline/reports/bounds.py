"""The bounds of the rules that find incidents: their defaults with reasons, and the TOML file with
which a user changes them.
"""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_STRICT: Final = ConfigDict(extra="forbid", frozen=True)


class GroupBounds(BaseModel):
    """Bounds for the groups whose names match the pattern ``match``. If a bound is None, the bound
    of all groups applies.
    """

    model_config = _STRICT

    match: str = Field(description="The groups, as a pattern: `batch-*`. The first match counts.")
    stalled_minutes: int | None = Field(None, ge=1)
    stalled_messages: int | None = Field(None, ge=1)
    moved_messages: int | None = Field(None, ge=1)
    refused_commits: int | None = Field(None, ge=1)
    silent_minutes: int | None = Field(None, ge=1)
    slo_lag: int | None = Field(None, ge=0)
    slo_minutes: int | None = Field(None, ge=1)


class IncidentBounds(BaseModel):
    """The bounds of the rules. The defaults suit groups that consume all the time."""

    model_config = _STRICT

    stalled_minutes: int = Field(
        10,
        ge=1,
        description="A partition is stalled if its offset does not move for this many minutes, "
        "while its group commits other partitions. The default is twice `max.poll.interval.ms` "
        "(5 minutes), so a slow poll is no stall.",
    )
    stalled_messages: int = Field(
        100,
        ge=1,
        description="A partition is stalled only if its lag has grown by at least this many "
        "messages. A smaller growth may be one batch of a slow consumer.",
    )
    storm_rebalances: int = Field(
        10,
        ge=2,
        description="A storm is at least this many rebalances of a group within `storm_minutes`. "
        "A rolling restart causes two for each member, but takes longer.",
    )
    storm_minutes: int = Field(
        10,
        ge=1,
        description="The time, in minutes, in which `storm_rebalances` are counted. With one "
        "rebalance a minute a group consumes almost nothing.",
    )
    moved_messages: int = Field(
        100_000,
        ge=1,
        description="A rewind or a skip of at least this many messages is an incident. A smaller "
        "one is often a retry. The tables do not record smaller skips of members, so a lower "
        "bound finds no more of those.",
    )
    refused_commits: int = Field(
        10,
        ge=1,
        description="An incident is at least this many refused commits of one member. A slow "
        "member has one or two after a rebalance.",
    )
    silent_minutes: int = Field(
        60,
        ge=1,
        description="A group is silent if it commits nothing for this many minutes although it "
        "is behind. Set it longer than the pause between two runs of a batch job.",
    )
    slo_lag: int = Field(
        100_000,
        ge=0,
        description="The service level objective (SLO) in messages: no partition should be "
        "further behind than this.",
    )
    slo_minutes: int = Field(
        15,
        ge=1,
        description="The SLO is missed if the lag is above `slo_lag` for this many minutes. A "
        "shorter time is often a deployment.",
    )
    quiet_minutes: int = Field(
        60,
        ge=1,
        description="An incident about a rewind, a skip, a storm or refused commits ends this "
        "many minutes after the last of them. So a pipeline that runs every hour sees each one "
        "open. Another rewind, skip, storm or refusal in this time belongs to the same incident.",
    )
    groups: tuple[GroupBounds, ...] = Field(
        (),
        description="Tables `[[groups]]` with other bounds for the groups that `match`. "
        "`storm_*` and `quiet_minutes` are the same for all groups.",
    )

    def exceptions(self, name: str) -> list[tuple[str, int]]:
        """Return the values of a bound for some groups: pairs of a regular expression for the names
        of groups, and the value. The first match applies.
        """
        return [
            (f"^{fnmatch.translate(each.match)}", value)
            for each in self.groups
            if (value := getattr(each, name, None)) is not None
        ]


class BadBounds(Exception):
    """The file of bounds cannot be used. The message names the file and the problem."""


def read_bounds(path: Path | None) -> IncidentBounds:
    """Return the bounds in a TOML file; without a file, the defaults. Raises BadBounds if the file
    cannot be read or has an invalid value.
    """
    if path is None:
        return IncidentBounds()
    try:
        return IncidentBounds.model_validate(tomllib.loads(path.read_text()))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadBounds(f"{path}: {error}") from error
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}" for each in error.errors()
        )
        raise BadBounds(f"{path}: {'; '.join(problems)}") from error
