"""Spans and metrics of a session: a pure tracker of events, and the thread that sends them."""
