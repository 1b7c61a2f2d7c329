"""What a role can be asked of any path: the level, and the chain that proves it."""
