"""What clients ask of the daemon: the gate, and one table request → handler."""
