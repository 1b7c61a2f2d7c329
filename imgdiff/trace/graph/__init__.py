"""What code refers to: the modules of one image, cut into the blocks that are reached together."""
