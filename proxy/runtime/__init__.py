"""What every part of the process uses: log, tasks, gauges, watched and private files."""
