"""Reads shell commands without running them; ``reader`` is the way in."""
