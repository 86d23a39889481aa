"""Calls of tunable operations become records of a registry, with every candidate lowered."""
