"""Copies a journal while sessions work, and puts such a copy in the place of a journal."""
