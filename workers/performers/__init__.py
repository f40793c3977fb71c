"""The agent's thin shell: carries out what the tables decide."""
