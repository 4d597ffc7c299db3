"""What a shard keeps of groups: members, offsets, the state a group is in."""
