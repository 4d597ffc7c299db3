"""``groupkeeper consul``: the groups of readers that share partitions through Consul."""
