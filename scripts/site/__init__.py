"""The documentation as one HTML site: the repository's pages and a Python reference."""
