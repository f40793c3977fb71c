"""Patches: what they say, and files as they are afterwards. Text in, text out: no file is read."""
