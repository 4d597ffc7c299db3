"""Where topics, configs and ends come from, and which parts receive them."""
