"""Functions that are tuned when they are called."""
