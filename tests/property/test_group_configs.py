"""Configs of groups, whatever is asked in whatever order: one state, however one comes to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.group_configs import (
    CONFIG_KEYS,
    config_error,
    to_overrides,
)
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import GroupConfigs
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    GroupConfigChange,
)
from groupkeeper.coordinator.core.routing import shard_of
from tests.helpers.core.examples import examples

SHARDS = 4
LIMITS = CoreLimits(max_configured_groups=3)

group_ids = st.sampled_from(["", "a", "b", "c", "d", "\u00e9\ud83d\ude00"])
keys = st.sampled_from([*CONFIG_KEYS, "nowhere"])
values = st.none() | st.sampled_from(["true", "0", "1", " 46000", "50000", "earliest", "x"])
changes = st.dictionaries(keys, values, max_size=3)
requests = st.builds(
    lambda groups, validate_only: AlterGroupConfigs(
        Client("admin", "/10.0.0.9"),
        tuple(GroupConfigChange(g, tuple(pairs.items())) for g, pairs in groups.items()),
        validate_only,
    ),
    st.dictionaries(group_ids, changes, max_size=4),
    st.booleans(),
)


def refused(result: AlterGroupConfigsResult) -> set[str]:
    return {r.group_id for r in result.groups if r.error is not ErrorCode.NONE}


@given(asked=st.lists(requests, max_size=12), cut=st.integers(0, 12))
@settings(max_examples=examples(200), deadline=None)
def test_shard_store_and_replay_agree_and_nothing_wrong_is_kept(
    asked: list[AlterGroupConfigs], cut: int
) -> None:
    shard = ClusterShard(LIMITS)
    followed = GroupConfigStore(SHARDS, LIMITS)
    written: list[GroupConfigs] = []
    for request in asked:
        before = dict(shard.configs)
        step = shard.handle(request, "ticket", Now(0, 0))
        records = [record for record in step.records if isinstance(record, GroupConfigs)]
        assert len(records) == len(step.records) == len(step.events)
        (reply,) = step.replies
        assert isinstance(reply.result, AlterGroupConfigsResult)
        untouched = refused(reply.result)
        if request.validate_only:
            untouched = {change.group_id for change in request.groups}
        assert {g: before.get(g) for g in untouched} == {g: shard.configs.get(g) for g in untouched}
        assert followed.apply(records) == {shard_of(r.group_id, SHARDS) for r in records}
        written += records
    assert len(shard.configs) <= LIMITS.max_configured_groups
    assert "" not in shard.configs
    for configs in shard.configs.values():
        assert configs
        assert config_error(configs, LIMITS) is None

    again = ClusterShard(LIMITS)
    for record in [*written, *written[cut:]]:
        again.apply(record)
    assert again.configs == shard.configs

    loaded = GroupConfigStore(SHARDS, LIMITS)
    loaded.replace(shard.configs)
    for store in (followed, loaded):
        assert {g: store.of(g) for g in store.groups()} == shard.configs
        by_shard = {
            g: settings for n in range(SHARDS) for g, settings in store.overrides(n).items()
        }
        assert by_shard == {
            g: to_overrides(configs, LIMITS) for g, configs in shard.configs.items()
        }
        assert all(g in store.overrides(shard_of(g, SHARDS)) for g in by_shard)
