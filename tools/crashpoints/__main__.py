"""``python -m tools.crashpoints``: see `tools.crashpoints.main`."""

import sys

from tools.crashpoints.main import main

sys.exit(main())
