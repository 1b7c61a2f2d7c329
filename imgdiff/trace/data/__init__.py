"""Modules that no code names: what data files, entry points, the command line and ENV bring in."""
