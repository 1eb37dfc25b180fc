"""What a scrape costs, by who writes the page."""
