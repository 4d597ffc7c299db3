"""The backend for SQLite: one file, one writer."""
