"""Tokamax: its calls, and what a stamp says of one."""
