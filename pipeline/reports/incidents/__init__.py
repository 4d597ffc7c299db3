"""Incidents: what an operator should look at, found in the tables by rules."""
