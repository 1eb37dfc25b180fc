"""Produces of clients: judged in place, held for their turn, recognised by the template of the last one."""
