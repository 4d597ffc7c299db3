"""What ``groupkeeper storage`` does with a whole store: check it, repair it, move it."""
