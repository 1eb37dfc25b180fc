"""From the access log to proposed quotas. Knows no proxy: what it shares with it lies in quotas/."""
