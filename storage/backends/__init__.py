"""Where data lies: memory, SQLite, a store of the host's own."""
