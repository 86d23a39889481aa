"""ejkernel: its calls, their candidates, and its own overlay."""
