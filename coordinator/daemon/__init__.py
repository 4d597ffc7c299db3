"""The process `groupkeeper serve`: its settings, start, stop, logs and metrics."""
