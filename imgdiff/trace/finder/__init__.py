"""What a module name leads to: the search path of an interpreter, and the file that it finds there."""
