"""Documents printed from the code: the example config, and tables of documents.

``make docs`` writes them, and ``tests/house`` compares them. This file prints only the text between
two markers of a document. All other text is written by hand.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from typer import Typer
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.daemon.config import Settings, StaticSettings, StaticTopic
from groupkeeper.coordinator.daemon.metrics import DEFINITIONS
from groupkeeper.pipeline.reports.bounds import IncidentBounds
from groupkeeper.storage.event_log.event_kinds import COMMON_FIELDS, KINDS, Field
from groupkeeper.storage.event_log.json_schema import json_schema
from tests.conformance.kafka import allowed
from tests.helpers.printed import printed_files, printed_protocol, printed_rooms, printed_states

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "config.example.toml"
REFERENCE = ROOT / "docs" / "reference"
EVENTS = REFERENCE / "events.md"
INCIDENTS = ROOT / "docs" / "operate" / "incidents.md"
EVENTS_SCHEMA = REFERENCE / "events.schema.json"
DIFFERENCES = ROOT / "docs" / "understand" / "differences.md"
STATES = ROOT / "docs" / "spec" / "states.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

_HEAD = """\
# Every setting of groupkeeper with its default. Printed from the code by `make docs`.
# The environment wins over this file: GROUPKEEPER_KAFKA__LISTEN, GROUPKEEPER_STORAGE__URL ...
# `groupkeeper check-config --config FILE` shows what is in force and where it came from.
"""


def example_toml() -> str:
    """Return ``config.example.toml``: every key, its default, its unit and its reason."""
    parts = [_HEAD]
    for section, field in Settings.model_fields.items():
        model = type(field.default)
        parts.append(f"[{section}]{' ' * (24 - len(section))}# {_first_line(model.__doc__)}")
        for key, setting in model.model_fields.items():
            if (section, key) == ("static", "topics"):
                continue
            parts.append(_comment(setting.description or ""))
            parts.append(f"{key} = {json.dumps(setting.default)}\n")
        if section == "static":
            parts += _example_topic()
    return "\n".join(parts)


def _example_topic() -> list[str]:
    lines = [_comment(StaticSettings.model_fields["topics"].description)]
    lines.append("# [[static.topics]]")
    for key, setting in StaticTopic.model_fields.items():
        value = {"name": "orders", "partitions": 12}.get(key, setting.default)
        lines.append(_comment(setting.description))
        lines.append(f"# {key} = {json.dumps(value)}")
    return [*lines, ""]


def settings_table() -> str:
    """Return the settings as a Markdown table."""
    lines = ["| setting | default | what it is and why |", "| --- | --- | --- |"]
    for section, field in Settings.model_fields.items():
        for key, setting in type(field.default).model_fields.items():
            default = json.dumps(setting.default)
            lines.append(f"| `{section}.{key}` | `{default}` | {setting.description} |")
    for key, setting in StaticTopic.model_fields.items():
        default = "" if setting.is_required() else f"`{json.dumps(setting.default)}`"
        lines.append(f"| `static.topics[].{key}` | {default} | {setting.description} |")
    return "\n".join(lines)


def metrics_table() -> str:
    """Return the metrics as a Markdown table."""
    lines = ["| metric | kind | what it says | what to do with it |", "| --- | --- | --- | --- |"]
    for definition in DEFINITIONS:
        labels = "{" + ", ".join(definition.labels) + "}" if definition.labels else ""
        name = f"`{definition.full_name}{labels}`"
        lines.append(f"| {name} | {definition.kind} | {definition.help} | {definition.advice} |")
    return "\n".join(lines)


def bounds_table() -> str:
    """Return the bounds of the rules for incidents as a Markdown table."""
    lines = ["| bound | default | what it is and why |", "| --- | --- | --- |"]
    for name, field in IncidentBounds.model_fields.items():
        default = f"`{field.default}`" if isinstance(field.default, int) else ""
        lines.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(lines)


def cli_help() -> str:
    """Return the help of every command, as a terminal of 80 columns shows it."""
    texts = []
    for arguments in ([], *_commands(app)):
        shown = CliRunner().invoke(
            app, [*arguments, "--help"], prog_name="groupkeeper", terminal_width=80
        )
        assert shown.exit_code == 0, shown.output
        line = " ".join(["groupkeeper", *arguments, "--help"])
        texts.append(f"$ {line}\n{shown.output.rstrip()}")
    return "```\n" + "\n\n".join(texts) + "\n```"


def common_fields_table() -> str:
    """Return the fields that every event has, as a Markdown table."""
    return _fields_table(COMMON_FIELDS)


def kinds_of_events() -> str:
    """Return every kind of event with its fields."""
    parts = []
    for kind in KINDS:
        if kind.fields:
            body = f"{kind.meaning}\n\n{_fields_table(kind.fields)}"
        else:
            body = f"{kind.meaning} No fields of its own."
        parts.append(f"### `{kind.name}`\n\n{body}")
    return "\n\n".join(parts)


def _fields_table(fields: Iterable[Field]) -> str:
    rows = [
        f"| `{name}` | {field.type} | {field.meaning} |" for name, field in named_fields(fields)
    ]
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *rows])


def named_fields(fields: Iterable[Field], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield (path, field) of fields and those inside them, such as
    ``topics[].partitions[].offset``.
    """
    for field in fields:
        yield prefix + field.name, field
        yield from named_fields(field.fields, f"{prefix}{field.name}[].")


def _commands(family: Typer) -> Iterator[list[str]]:
    """Yield the arguments of each command. A family of commands is not a command itself."""
    yield from ([str(command.name)] for command in family.registered_commands)
    for group in family.registered_groups:
        assert group.typer_instance is not None
        for arguments in _commands(group.typer_instance):
            yield [str(group.name), *arguments]


SECTIONS: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    REFERENCE / "settings.md": {"settings": settings_table},
    REFERENCE / "metrics.md": {"metrics": metrics_table},
    REFERENCE / "commands.md": {"command line": cli_help},
    REFERENCE / "protocol-support.md": {
        "served APIs": printed_protocol.served_apis,
        "features": printed_protocol.features,
        "gateway APIs": printed_protocol.gateway_apis,
    },
    EVENTS: {"event fields": common_fields_table, "event kinds": kinds_of_events},
    INCIDENTS: {"bounds": bounds_table},
    DIFFERENCES: {"decisions": allowed.table},
    ARCHITECTURE: {"rooms": printed_rooms.picture, "list of rooms": printed_files.rooms},
    REFERENCE / "files.md": {"files": printed_files.files},
    STATES: {
        "state diagram": printed_states.diagram,
        "answers by state": printed_states.answers,
        "joins by state": printed_states.joins,
        "static joins by state": printed_states.static_joins,
        "changes of membership": printed_states.changes,
    },
}


def with_printed_sections(document: Path) -> str:
    """Return the text of a document. The text between its markers is printed again."""
    text = document.read_text()
    for name, printed in SECTIONS[document].items():
        begin, end = f"<!-- printed: {name} -->", f"<!-- end: {name} -->"
        assert begin in text, f"{document.name} lacks {begin}"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        body = f"{begin}\n\n{printed()}\n\n{end}"
        text = re.sub(pattern, lambda _, body=body: body, text, flags=re.DOTALL)
    return text


def _comment(text: str | None) -> str:
    return textwrap.fill(text or "", 98, initial_indent="# ", subsequent_indent="# ")


def _first_line(text: str | None) -> str:
    return (text or "").splitlines()[0]


def events_json_schema() -> str:
    """Return ``docs/reference/events.schema.json``: the JSON Schema of an event."""
    return json.dumps(json_schema(), indent=1) + "\n"


if __name__ == "__main__":
    EXAMPLE.write_text(example_toml())
    EVENTS_SCHEMA.write_text(events_json_schema())
    for document in SECTIONS:
        document.write_text(with_printed_sections(document))
