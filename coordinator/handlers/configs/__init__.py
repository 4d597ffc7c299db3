"""The APIs of configs, one file each."""
