"""Copies the tables of gold (summaries for reports) into other table formats (Delta, Iceberg),
without Spark and Java.
"""
