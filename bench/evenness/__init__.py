"""How evenly a byte rate is kept: native quota against Sluice."""
