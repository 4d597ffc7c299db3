"""Topics and configs in the core: the shard that holds them, and the image of them."""
