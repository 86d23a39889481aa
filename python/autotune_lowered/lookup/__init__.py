"""Best configs: caches, overlays, and which of them is in force when a call is traced."""
