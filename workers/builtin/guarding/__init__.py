"""What the security guard is made of: blocked paths and commands, and where calls name them."""
