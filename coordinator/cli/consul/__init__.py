"""``groupkeeper consul``."""
