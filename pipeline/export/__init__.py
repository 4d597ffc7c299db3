"""Copies the tables of gold into other table formats (Delta, Iceberg), without Spark and Java."""
