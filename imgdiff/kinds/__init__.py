"""Kinds of files: what one refers to (its facts, for the trace) and what in a changed one differs (its delta)."""
