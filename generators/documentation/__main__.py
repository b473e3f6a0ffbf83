"""Writes or checks the generated pages: `python -m generators.documentation --write`."""

import sys

from generators.documentation.documents import main

sys.exit(main())
