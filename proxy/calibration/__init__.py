"""`sluice calibrate-cost`: what requests cost a broker, measured on it; and the file of these costs."""
