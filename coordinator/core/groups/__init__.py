"""What a shard holds of its groups: members, offsets, states."""
