"""Writes the open incidents to a file for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from groupkeeper.pipeline.reports.incidents.find import FoundIncidents
from groupkeeper.pipeline.reports.incidents.rules import RULES

MAX_SERIES: Final = 1000
"""The largest number of incidents with their own time series. ``groupkeeper_incidents_open`` counts
all open incidents."""


def textfile(found: FoundIncidents) -> str:
    """Return the content of the file. The count of a rule without open incidents is 0."""
    counted = Counter(each["rule"] for each in found.open)
    lines = [
        "# HELP groupkeeper_incidents_open Open incidents, by rule.",
        "# TYPE groupkeeper_incidents_open gauge",
        *(
            f"groupkeeper_incidents_open{_labels(rule=rule.name, severity=rule.severity)} "
            f"{counted[rule.name]}"
            for rule in RULES
        ),
        "# HELP groupkeeper_incident_start_timestamp_seconds When an open incident began.",
        "# TYPE groupkeeper_incident_start_timestamp_seconds gauge",
    ]
    for each in found.open[:MAX_SERIES]:
        labels = _labels(**{name: each[name] for name in _LABELS})
        started = each["started_ms"] / 1000
        lines.append(f"groupkeeper_incident_start_timestamp_seconds{labels} {started:.3f}")
    if found.as_of_ms is not None:
        lines += [
            "# HELP groupkeeper_incidents_as_of_timestamp_seconds The end of the tables.",
            "# TYPE groupkeeper_incidents_as_of_timestamp_seconds gauge",
            f"groupkeeper_incidents_as_of_timestamp_seconds {found.as_of_ms / 1000:.3f}",
        ]
    return "\n".join([*lines, ""])


_LABELS: Final = ("rule", "severity", "store", "group", "subject")


def _labels(**values: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_textfile(found: FoundIncidents, path: Path) -> None:
    """Write or replace the file atomically, so that the collector never reads a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")  # the collector reads only *.prom
    beside.write_text(textfile(found))
    beside.replace(path)
