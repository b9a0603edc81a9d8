"""A whole cluster on this machine: PostgreSQL, Redis, Kafka and two processes of each role.

`make stack` and `make stack-stop` call it; `.venv/bin/python deploy/stack.py start --help` has the
options. The code is the package beside this file.
"""

import sys

from local_stack.cli import main

if __name__ == "__main__":
    sys.exit(main())
