"""What the daemon does for its own health: memory, pruning, reload, the self-check."""
