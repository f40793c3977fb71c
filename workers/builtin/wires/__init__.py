"""What speaks vendors' wires: requests as JSON, replies as they stream in, one HTTP shell."""
