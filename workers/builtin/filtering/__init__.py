"""Finding what must not be shown in text that comes in pieces."""
