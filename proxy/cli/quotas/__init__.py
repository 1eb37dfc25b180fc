"""`sluice configs` and `sluice quotas`: limits seen and changed, in a file or at a server."""
