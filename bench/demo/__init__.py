"""The demo: one quota kept by the broker and by Sluice, side by side."""
