"""The backend for SQLite: one file, which one process writes."""
