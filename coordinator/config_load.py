"""Reads the settings: defaults < TOML file < environment ``GROUPKEEPER_<SECTION>__<KEY>``.

A key that does not exist is refused with the nearest one that does, for a misspelt limit that is
silently ignored is found on the worst day.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from coordinator.config import (
    ENV_DELIMITER,
    ENV_PREFIX,
    Settings,
    StaticTopic,
    setting_names,
    variable_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class ConfigError(Exception):
    """The settings cannot be used; each problem is one line that says where it is and what to
    do."""

    def __init__(self, *problems: str) -> None:
        """Keep the problems, one line each."""
        super().__init__("\n".join(problems))
        self.problems = problems


class LoadedSettings(NamedTuple):
    """Settings in force, and where each came from."""

    settings: Settings
    origins: Mapping[str, str]
    """``section.key`` -> ``default``, the file's path, or the name of the environment variable."""


def load_settings(file: Path | None) -> LoadedSettings:
    """Read the file and the environment; raises ConfigError with every problem found."""
    content = {} if file is None else _read_toml(file)
    environment = _read_environment()
    try:
        settings = Settings(**content)
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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None


def _wrong_types(content: Mapping[str, Any], file: Path | None) -> Iterator[str]:
    """Look for "7" where 7 belongs: a file has types, unlike the environment."""
    for section, keys in content.items():
        model = type(Settings.model_fields[section].default)
        try:
            # As JSON, whose lists a strict model takes for tuples.
            model.model_validate_json(json.dumps(keys, default=str), strict=True)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                if not detail["type"].endswith("_type"):
                    continue  # a value that the environment replaces
                name = ".".join([section, *map(str, detail["loc"])])
                found = detail["input"]
                yield f"{file}: {name}: {_sentence(detail['msg'])} (it is {found!r})"


def _read_environment() -> dict[str, Any]:
    problems = list(_misspelt_variables())
    if problems:
        raise ConfigError(*problems)
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        name = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), "")
        variables = sorted(v for v in os.environ if v.upper().startswith(variable_of(name)))
        raise ConfigError(
            f"{', '.join(variables)}: not valid JSON for a list or a section"
        ) from None


def _misspelt_variables() -> Iterator[str]:
    # GROUPKEEPER_ without "__" is not ours: Kubernetes puts GROUPKEEPER_PORT, _SERVICE_HOST and
    # the like into every pod beside a service of that name. What looks like one of ours with "_"
    # for "__" is.
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
    return "there are: " + ", ".join(candidates)


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
            # a rule between sections names its settings itself
            yield _sentence(detail["msg"])
            continue
        from_file = _holds(content, loc) and not _holds(environment, loc)
        where = f"{file}: {name}" if from_file else variable_of(".".join(loc[:2]))
        if detail["type"] == "extra_forbidden":
            kind = "section" if len(loc) == 1 else "key"
            yield f"{where}: no such {kind}; {_nearest(loc[-1], _siblings(loc))}"
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
