"""`python -m mainspring_server.cli` is `mainspring`."""

from .app import main

main()
