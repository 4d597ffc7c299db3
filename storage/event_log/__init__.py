"""The event log: write, keep, check and read segments."""
