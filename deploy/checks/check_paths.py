"""Puts what checks share with tests and benchmarks on the path: the repository's root, for testkit.

Imported before them, as `import check_paths`, so that a check runs without the frame too.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))
