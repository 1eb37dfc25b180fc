"""`python -m sluice.recalibration`, and what spark-submit is given: `sluice recalibrate`."""

from sluice.recalibration.cli import main

if __name__ == "__main__":
    main()
