"""putback: record what a command does to a folder, and put it back exactly."""

__version__ = "0.1.0"
