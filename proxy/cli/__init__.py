"""The command `sluice`, one file a command."""
