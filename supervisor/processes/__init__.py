"""The worker processes: the pool, what contains each of them, and their tool hosts."""
