"""The sources of topics, configs and ends, and the parts that receive them."""
