"""Three brokers whose followers fetch through Sluice, and what watches a partition move."""
