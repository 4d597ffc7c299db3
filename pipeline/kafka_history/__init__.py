"""What a broker's `__consumer_offsets` tells, as events."""
