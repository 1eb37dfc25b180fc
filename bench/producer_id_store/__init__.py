"""What a producer id costs to look up and to remember."""
