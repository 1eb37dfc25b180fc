"""Partition moves under Kafka's own throttle and Sluice's."""
