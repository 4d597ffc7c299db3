"""Run shards over a storage: ownership, group commit, deadlines and loading."""
