"""What a command line starts: wrappers, shells and scripts, to the program that stays."""
