"""Sealing: the events in the rows of a store are moved into files, and old files are deleted."""
