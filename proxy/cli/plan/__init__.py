"""`sluice quotas apply PLAN`: a plan of the nightly job read, chosen from, written and rolled back."""
