"""Lines of a session's log: which events are told how, and the file that takes them."""
