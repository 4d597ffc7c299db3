"""The groups of a shard: members, offsets, states."""
