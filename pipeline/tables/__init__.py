"""The tables: bronze, silver and gold, and who may write them."""
