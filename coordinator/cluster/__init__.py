"""Where topics, configs and ends come from, and whom they are given to."""
