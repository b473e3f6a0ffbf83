"""`python -m kafka_quotas` is `kafka-quotas`."""

import sys

from kafka_quotas.cli.start import main

sys.exit(main())
