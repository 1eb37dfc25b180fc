"""What lies between nights: windows → daily histograms → the store."""
