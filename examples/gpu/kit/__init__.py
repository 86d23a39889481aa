"""What `prepare`, `accept` and `collect` are made of. Python 3.9 and its standard library suffice."""
