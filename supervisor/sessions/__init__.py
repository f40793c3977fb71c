"""The sessions: phase, agent and commands of each, and the tree that restarts them."""
