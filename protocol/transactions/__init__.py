"""Transactions' requests: what makes producer state in them, and answers that refuse it."""
