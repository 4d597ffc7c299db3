"""Storage backends: memory, SQLite, and a store of the host."""
