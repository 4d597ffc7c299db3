"""The handlers of the APIs for configs, one file each."""
