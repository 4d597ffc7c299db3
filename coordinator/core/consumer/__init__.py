"""Consumer groups: the coordinator assigns (docs/spec/consumer-groups.md).

Not served yet. These modules know no requests and no shard.
"""
