"""Reads the settings from a TOML file and from the environment (``GROUPKEEPER_<SECTION>__<KEY>``).
The environment wins over the file, and the file over the defaults.

An unknown key is an error that names the nearest known one. A misspelt limit must not be ignored
silently.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from groupkeeper.coordinator.daemon.config import Settings, StaticTopic
from groupkeeper.coordinator.daemon.setting_names import (
    ENV_DELIMITER,
    ENV_PREFIX,
    setting_names,
    variable_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_BOUNDS = {"greater_than_equal": ("ge", "least"), "less_than_equal": ("le", "most")}


class ConfigError(Exception):
    """The settings cannot be used. Each problem is one line: where it is and what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadedSettings(NamedTuple):
    """The settings in force, and the origin of each."""

    settings: Settings
    origins: Mapping[str, str]
    """``section.key`` -> ``default``, the file's path, or the name of the environment variable."""


def load_settings(file: Path | None) -> LoadedSettings:
    """Return the settings of the file and the environment. Raises ConfigError if they are invalid,
    with all problems found.
    """
    content = {} if file is None else _read_toml(file)
    environment = _read_environment()
    try:
        settings = Settings.model_validate(_merged(content, environment))
    except ValidationError as error:
        raise ConfigError(*_explain(error, content, environment, file)) from None
    problems = list(_wrong_types(content, file))
    if problems:
        raise ConfigError(*problems)
    origins: dict[str, str] = {}
    for name in setting_names():
        section, key = name.split(".")
        if key in environment.get(section, {}):
            origins[name] = variable_of(name)
        elif key in content.get(section, {}):
            origins[name] = str(file)
        else:
            origins[name] = "default"
    return LoadedSettings(settings, origins)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file; name an existing one with --config") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: not UTF-8 at byte {error.start}; save it in that encoding"
        ) from None
    except ValueError as error:  # raised by tomllib, and by Python for a number of 5,000 digits
        raise ConfigError(f"{file}: not valid TOML: {error}; correct it there") from None
    except RecursionError:
        raise ConfigError(
            f"{file}: brackets are nested too deeply; no setting needs that"
        ) from None
    except OSError as error:
        advice = {
            errno.EACCES: "let the user that runs groupkeeper read it and enter its directories",
            errno.EISDIR: "name the file in it with --config",
        }.get(error.errno or 0, "name a readable file with --config")
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); {advice}") from None


def _wrong_types(content: Mapping[str, Any], file: Path | None) -> Iterator[str]:
    """Yield a problem for each value of a wrong type, such as "7" for 7. Only the file is checked,
    because values of the environment have no types.
    """
    for section, keys in content.items():
        model = type(Settings.model_fields[section].default)
        try:
            # As JSON, because a strict model accepts JSON lists as tuples.
            model.model_validate_json(json.dumps(keys, default=str), strict=True)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                if not detail["type"].endswith("_type"):
                    # The whole settings are valid, so the environment replaces this value.
                    continue
                name = ".".join([section, *map(str, detail["loc"])])
                found = detail["input"]
                yield f"{file}: {name}: {_sentence(detail['msg'])} (it is {found!r})"


def _merged(content: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of file and environment. If a setting is in both, the environment's value
    wins.
    """
    merged = dict(content)
    for section, wins in environment.items():
        below = merged.get(section)
        if isinstance(below, dict) and isinstance(wins, dict):
            merged[section] = {**below, **wins}
        else:
            merged[section] = wins
    return merged


def _read_environment() -> dict[str, Any]:
    """Read the ``GROUPKEEPER_`` variables: text for a key, JSON for a list or for a section.

    pydantic-settings can do this too, but its import adds 30 ms to every start.
    """
    problems = list(_misspelt_variables())
    if problems:
        raise ConfigError(*problems)
    variables = {name.upper(): name for name in os.environ}
    found: dict[str, Any] = {}
    for section, field in Settings.model_fields.items():
        if (variable := variables.get(variable_of(section))) is not None:
            found[section] = _read_json(variable)
        for key, default in field.default:
            if (variable := variables.get(variable_of(f"{section}.{key}"))) is None:
                continue
            is_list = isinstance(default, tuple)
            value = _read_json(variable) if is_list else os.environ[variable]
            found = _merged(found, {section: {key: value}})
    return found


def _read_json(variable: str) -> Any:
    try:
        return json.loads(os.environ[variable])
    except ValueError:
        raise ConfigError(f"{variable}: not valid JSON for a list or a section") from None


def _misspelt_variables() -> Iterator[str]:
    # A name without "__" is not ours: if Kubernetes has a service named groupkeeper, it sets
    # GROUPKEEPER_PORT, _SERVICE_HOST and the like in every pod of its namespace. A setting's name
    # with "_" for "__" is a mistake.
    known = {variable_of(name): name for name in setting_names()}
    flat = {variable.replace(ENV_DELIMITER, "_"): variable for variable in known}
    for variable in sorted(os.environ):
        upper = variable.upper()
        if not upper.startswith(ENV_PREFIX) or upper in known:
            continue
        if upper in flat:
            yield f"{variable}: not a setting; did you mean {flat[upper]}?"
        elif ENV_DELIMITER in upper:
            yield f"{variable}: not a setting; {_nearest(upper, list(known))}"


def _nearest(word: str, candidates: list[str]) -> str:
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.4)
    if close:
        return f"did you mean {close[0]}?"
    return "known names: " + ", ".join(candidates)


def _explain(
    error: ValidationError,
    content: Mapping[str, Any],
    environment: Mapping[str, Any],
    file: Path | None,
) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        loc = [str(part) for part in detail["loc"]]
        name = ".".join(loc)
        if not loc:
            # the message of a rule about several sections names the settings
            message = _sentence(detail["msg"])
            named = [name.split(".") for name in setting_names() if name in message]
            is_in_file = any(_holds(content, name) for name in named)
            yield f"{file}: {message}" if is_in_file else message
            continue
        from_file = _holds(content, loc) and not _holds(environment, loc)
        where = f"{file}: {name}" if from_file else variable_of(".".join(loc[:2]))
        if detail["type"] == "extra_forbidden":
            kind = "section" if len(loc) == 1 else "key"
            yield f"{where}: no such {kind}; {_nearest(loc[-1], _siblings(loc))}"
        elif detail["type"] in _BOUNDS:  # in the words of CoordinatorConfig's errors
            bound, says = _BOUNDS[detail["type"]]
            yield f"{where}: must be at {says} {detail['ctx'][bound]}, not {detail['input']}"
        elif detail["type"] in ("missing", "value_error"):
            yield f"{where}: {_sentence(detail['msg'])}"
        else:
            yield f"{where}: {_sentence(detail['msg'])} (it is {detail['input']!r})"


def _holds(tree: Mapping[str, Any], loc: list[str]) -> bool:
    section = tree.get(loc[0])
    return section is not None and (len(loc) == 1 or loc[1] in section)


def _siblings(loc: list[str]) -> list[str]:
    if len(loc) == 1:
        return list(Settings.model_fields)
    if loc[:2] == ["static", "topics"]:
        return list(StaticTopic.model_fields)
    return [name.split(".")[1] for name in setting_names() if name.startswith(loc[0] + ".")]


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[0].lower() + message[1:] if message.startswith(("Input", "String")) else message
