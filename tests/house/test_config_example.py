"""``config.example.toml`` and the pages of ``docs/reference`` are what the code says."""

from __future__ import annotations

import tomllib

from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.daemon.config_load import load_settings
from groupkeeper.coordinator.daemon.metrics import DEFINITIONS
from groupkeeper.coordinator.daemon.setting_names import setting_names
from tests.helpers.printed.printed_docs import (
    EXAMPLE,
    REFERENCE,
    ROOT,
    example_toml,
)


def test_example_is_printed_from_the_code():
    assert EXAMPLE.read_text() == example_toml(), "run `make docs`"


def test_example_holds_every_key_with_its_default():
    example = tomllib.loads(EXAMPLE.read_text())
    named = {f"{section}.{key}" for section, keys in example.items() for key in keys}
    assert named == set(setting_names()) - {"static.topics"}
    assert load_settings(EXAMPLE).settings == Settings()


def test_every_commented_key_of_the_example_is_valid():
    text = EXAMPLE.read_text()
    begin = text.index("# [[static.topics]]")
    topic = text[begin : text.index("[group]")]
    lines = [line[2:] for line in topic.splitlines() if " = " in line or "[[" in line]
    parsed = tomllib.loads("\n".join(lines))
    assert Settings(**parsed).static.topics[0].partitions == 12


def test_the_reference_has_every_setting_and_metric():
    settings = (REFERENCE / "settings.md").read_text()
    assert [name for name in setting_names() if f"`{name}`" not in settings] == []
    metrics = (REFERENCE / "metrics.md").read_text()
    assert [each.full_name for each in DEFINITIONS if each.full_name not in metrics] == []


def test_settings_of_make_run_are_valid_and_have_example_topics_on_sqlite():
    settings = load_settings(ROOT / "deploy" / "run.toml").settings
    assert settings.kafka.listen == "127.0.0.1:9092"
    assert settings.http.listen == "127.0.0.1:9308"
    assert settings.storage.url.startswith("sqlite:///")
    assert settings.group.initial_rebalance_delay_ms == 0
    assert settings.static.topics
