"""What surrounds a shard: its owner, the writer with its group commit, deadlines, loading."""
