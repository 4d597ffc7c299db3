"""The event log: write, keep, check and read segments, which are files of events."""
