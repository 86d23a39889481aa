"""Calls of libraries' operations, told to a recording."""
