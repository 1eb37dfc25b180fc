"""The demo of recalibration: traffic → log → plan → applied → enforced."""
