"""Every known way round a limit, tried as an attack: at Sluice, and at the broker's own quota."""
