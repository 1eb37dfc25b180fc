"""`sluice doctor`: does what is configured fit the machine, the broker and the way that clients take?"""
