"""The command line, one file or folder for each family of commands."""
