"""``groupkeeper pipeline``: tables and reports from the event log, restores and migrations."""
