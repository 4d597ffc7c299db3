"""The served APIs and features, printed for docs/reference/protocol-support.md."""

from __future__ import annotations

from groupkeeper.protocol.versions import APIS, FEATURES, NEVER_FLEXIBLE

_HEAD = (
    "| Key | API | Served | Advertised | Flexible from | Notes |",
    "| ---: | --- | --- | --- | --- | --- |",
)


def served_apis() -> str:
    """The table of the APIs."""
    rows = []
    for api in APIS:
        flexible = "none" if api.first_flexible == NEVER_FLEXIBLE else api.first_flexible
        rows.append(
            f"| {api.key.value} | {api.name} | {api.lowest_served}-{api.max_version} "
            f"| {api.advertised_min}-{api.max_version} | {flexible} | {' '.join(api.notes)} |"
        )
    return "\n".join([*_HEAD, *rows])


def features() -> str:
    """The features of ApiVersions."""
    return f"Finalized features: {', '.join(f'`{f.name}` = {f.finalized}' for f in FEATURES)}."
