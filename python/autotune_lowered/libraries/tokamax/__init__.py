"""Tokamax: its calls, and the stamp of a call."""
