"""Best configs: caches, overlays, and which of them is in force where a call is traced."""
