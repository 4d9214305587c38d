"""`python -m ontologia.cli` is `onto`."""

from __future__ import annotations

import sys

from ontologia.cli import main

sys.exit(main())
