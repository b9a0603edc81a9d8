"""PostgreSQL, Redis and Apache Kafka, native: install, start and stop them.

Runs before any environment exists, with nothing but Python 3.11 on Linux:
`python3 deploy/services.py --help`. The code is the package beside this file.
"""

import sys

from native_services.cli import main

if __name__ == "__main__":
    sys.exit(main())
