"""What a process maps and starts: shared objects as the dynamic loader finds them, and programs."""
