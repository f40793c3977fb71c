"""What runs for one prompt: the modules and functions of client, daemon and agent."""
