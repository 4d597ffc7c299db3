"""The served APIs and features, printed for docs/reference/protocol-support.md."""

from __future__ import annotations

from groupkeeper.coordinator.gateway.apis import TABLE
from groupkeeper.protocol.versions import APIS, FEATURES, NEVER_FLEXIBLE

_HEAD = (
    "| Key | API | Served | Advertised | Flexible from | Notes |",
    "| ---: | --- | --- | --- | --- | --- |",
)


def served_apis() -> str:
    """Return the table of the APIs."""
    rows = []
    for api in APIS:
        flexible = "none" if api.first_flexible == NEVER_FLEXIBLE else api.first_flexible
        rows.append(
            f"| {api.key.value} | {api.name} | {api.lowest_served}-{api.max_version} "
            f"| {api.advertised_min}-{api.max_version} | {flexible} | {' '.join(api.notes)} |"
        )
    return "\n".join([*_HEAD, *rows])


def features() -> str:
    """Return the features of ApiVersions."""
    return f"Finalized features: {', '.join(f'`{f.name}` = {f.finalized}' for f in FEATURES)}."


_GATEWAY_HEAD = (
    "| Key | API | Versions | Treatment | Notes |",
    "| ---: | --- | --- | --- | --- |",
)


def gateway_apis() -> str:
    """Return the table of the APIs that a listener offers in gateway mode."""
    rows = []
    for key, api in TABLE.items():
        what = api.treatment.value
        if api.passed_below:
            what = f"passed below {api.passed_below}, then {what}"
        rows.append(
            f"| {key} | {api.name} | {api.min_version}-{api.max_version} | {what} | {api.notes} |"
        )
    return "\n".join([*_GATEWAY_HEAD, *rows])
