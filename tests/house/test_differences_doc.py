"""``docs/differences.md`` names every group config that Kafka does not have, with its default."""

from __future__ import annotations

import re

from coordinator.config import setting_names
from coordinator.core.group_configs import CONFIG_KEYS
from tests.conformance.differential_admin import OUR_KEYS
from tests.helpers.printed_docs import ROOT

TEXT = (ROOT / "docs" / "differences.md").read_text()
CONFIGS = TEXT.partition("## Configs of a group")[2].partition("\n## ")[0]
OURS = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", CONFIGS, re.MULTILINE))


def test_every_key_of_ours_is_explained_with_its_default() -> None:
    assert set(OURS) == OUR_KEYS
    for name, default in OURS.items():
        stated = CONFIG_KEYS[name].default
        # Where nothing else is said, a setting of the daemon holds.
        assert default.startswith(f"`{stated}`" if stated else "the daemon's `"), name


def test_the_settings_of_the_daemon_that_it_names_exist() -> None:
    named = re.findall(r"the daemon's `([a-z_.]+)`", CONFIGS)
    assert len(named) == 2
    assert set(named) <= set(setting_names())


def test_every_key_of_ours_comes_after_kafkas_and_changes_nothing_by_itself() -> None:
    assert list(CONFIG_KEYS)[-len(OUR_KEYS) :] == [k for k in CONFIG_KEYS if k in OUR_KEYS]
    assert {CONFIG_KEYS[name].default for name in OUR_KEYS} <= {"false", "0", ""}


def test_every_difference_is_given_its_reason() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)
    assert len(tables) >= 8
    for table in tables:
        head, rule, *rows = [
            [c.strip() for c in row[1:-1].split("|")] for row in table.splitlines()
        ]
        assert head[-1] == "why"
        assert {len(row) for row in (rule, *rows)} == {len(head)}, table
        assert all(all(row) for row in rows), table
