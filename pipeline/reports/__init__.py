"""Reports made from the tables."""
