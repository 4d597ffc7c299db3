"""The tables bronze, silver and gold, and the lock of their writer."""
