"""The event log as the pipeline reads it."""
