"""Plans that change committed offsets, and their execution."""
