"""Makes plans that change committed offsets, and applies them."""
