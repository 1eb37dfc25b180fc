"""CreateTopics, DeleteTopics and CreatePartitions: what requests change, and the answers to them."""
