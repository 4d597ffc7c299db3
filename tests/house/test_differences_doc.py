"""``docs/understand/differences.md`` has every group config of our own, with its default."""

from __future__ import annotations

import re

from groupkeeper.coordinator.core.cluster.group_configs import CONFIG_KEYS
from groupkeeper.coordinator.daemon.setting_names import setting_names
from tests.conformance.kafka.allowed import DECISIONS, MOST, OUR_KEYS, decision_of
from tests.conformance.kafka.case import SCRIPTED
from tests.conformance.kafka.comparison import Difference
from tests.conformance.kafka.test_cases import SUITES
from tests.helpers.printed.printed_docs import DIFFERENCES, with_printed_sections

TEXT = DIFFERENCES.read_text()
CONFIGS = TEXT.partition("## Configs of a group")[2].partition("\n## ")[0]
OURS = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", CONFIGS, re.MULTILINE))


def test_every_key_of_ours_is_explained_with_its_default() -> None:
    assert set(OURS) == OUR_KEYS
    for name, default in OURS.items():
        stated = CONFIG_KEYS[name].default
        # A row without another default names the daemon's setting.
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
    assert len(tables) >= 6
    for table in tables:
        head, rule, *rows = [
            [c.strip() for c in row[1:-1].split("|")] for row in table.splitlines()
        ]
        assert head[-1] == "why"
        assert {len(row) for row in (rule, *rows)} == {len(head)}, table
        assert all(all(row) for row in rows), table


def test_the_page_is_the_allow_list() -> None:
    assert with_printed_sections(DIFFERENCES) == TEXT, "run `make docs`"


def test_the_decisions_are_few_and_each_says_where_it_shows() -> None:
    assert len(DECISIONS) <= MOST == 20
    assert len({decision.title for decision in DECISIONS}) == len(DECISIONS)
    for decision in DECISIONS:
        assert all((decision.apis, decision.versions, decision.fields, decision.why)), decision


def test_a_rule_names_a_case_that_exists() -> None:
    assert SUITES
    names = {scripted.name for scripted in SCRIPTED}
    assert {rule.case for decision in DECISIONS for rule in decision.rules} <= names


def test_every_api_of_a_decision_is_met_by_the_comparison_or_it_says_why_not() -> None:
    for decision in DECISIONS:
        named = set(re.findall(r"[A-Z]\w+", decision.apis))
        met = {"".join(map(str.capitalize, a.split("_"))) for r in decision.rules for a in r.apis}
        assert decision.rules or decision.beyond, decision
        if not decision.apis.startswith("all"):
            assert met <= named, decision
        if decision.rules:
            assert all(api in met or api in decision.beyond for api in named), decision


def test_no_decision_allows_an_error_code_that_nobody_decided() -> None:
    for api in ("join_group", "sync_group", "heartbeat", "offset_commit", "offset_fetch"):
        found = Difference("any case", "any request", api, 3, "error_code", 25, 0)
        assert decision_of(found) is None


ELSEWHERE = {
    **dict.fromkeys(
        (39, 44, 111), "while a shard loads: unit/coordinator/runtime, by a slow store"
    ),
    **dict.fromkeys((86, 112), "patterns: unit/coordinator/core/consumer, conformance"),
    104: "a restart in mid-reconciliation: conformance/kafka/test_restarts.py",
    115: "damaged subscriptions: unit/coordinator/core/test_conversion.py",
    116: "share groups, not served",
    **dict.fromkeys((75, 76, 81, 82), "transactions, not served"),
}
"""Edge cases of docs/spec/edge-cases.md that no script names, and why."""


def test_every_edge_case_is_provoked_or_has_its_reason() -> None:
    provoked = {edge for scripted in SCRIPTED for edge in scripted.edges}
    assert provoked | ELSEWHERE.keys() == set(range(1, 123))
