"""Each package states its version, as a string that nobody may reassign to another type.

mypy checks this folder with `warn_unused_ignores`: an ignored misuse that starts to
type-check is reported, so each `type: ignore` below is an assertion.
"""

from typing import assert_type

import mainspring
import mainspring_server
import mainspring_worker

assert_type(mainspring.__version__, str)
assert_type(mainspring_worker.__version__, str)
assert_type(mainspring_server.__version__, str)

mainspring.__version__ = 1  # type: ignore[assignment]
