"""Functions of the user's own as tunable operations."""
