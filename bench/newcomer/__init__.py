"""Plays the newcomer: from nothing to the name of a throttled tenant, by the documentation alone."""
