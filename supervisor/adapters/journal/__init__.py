"""The journal: what the daemon writes down before it says yes. ``base`` is the contract."""
