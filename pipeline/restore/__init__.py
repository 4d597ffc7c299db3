"""Makes plans that change committed offsets, for a restore or a migration, and applies them."""
