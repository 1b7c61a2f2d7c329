"""What a role reaches: the fixpoint over the graph, and the rules for names and places that only code knows."""
