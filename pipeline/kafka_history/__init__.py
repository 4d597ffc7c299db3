"""The content of a broker's `__consumer_offsets`, as events."""
