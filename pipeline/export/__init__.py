"""Copies of gold in other table formats, without Spark and Java."""
