"""Check, repair and move a whole store, for the commands of ``groupkeeper storage``."""
