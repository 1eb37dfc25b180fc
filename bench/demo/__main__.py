"""`python -m bench.demo`, `make demo`."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # while modules load there is nothing to end, and nothing to say

from bench.demo.run import main  # noqa: E402

raise SystemExit(main())
