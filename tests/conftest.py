"""What every test shares: the Hypothesis profiles, and the real services."""

import os

from hypothesis import settings

pytest_plugins = ["tests.services", "tests.postgres"]

# A shared machine stalls now and then; a slow example is no failure, pytest's
# timeout is. CI tries the same examples on every run, so that a red run repeats.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
