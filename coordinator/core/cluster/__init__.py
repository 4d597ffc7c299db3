"""Topics and configs in the core: the shard that stores them, and the image of the topics."""
