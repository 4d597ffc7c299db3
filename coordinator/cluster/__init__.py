"""Topics, configs of groups and ends of partitions: their sources, and the way to their users."""
