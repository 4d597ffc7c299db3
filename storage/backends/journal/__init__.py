"""A store that several processes share, with one journal for each process."""
