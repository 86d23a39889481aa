"""Reports calls of libraries' operations to a recording."""
