"""Calendars: which instants a recurring schedule names, exactly and in bounded steps.

`parse` a `CalendarSpec` into a `Calendar`; ask it for `next_after`, `between` and `preview`.
`docs/reference/cron.md` has the semantics.
"""

from .calendar import DEFAULT_JITTER_MS, NO_ID, Calendar, CalendarSpec, parse
from .policy import DstEffect, DstGap, DstOverlap
from .preview import PreviewFire, preview
from .zones import tzdata_version, zone_names

__all__ = [
    "DEFAULT_JITTER_MS",
    "NO_ID",
    "Calendar",
    "CalendarSpec",
    "DstEffect",
    "DstGap",
    "DstOverlap",
    "PreviewFire",
    "parse",
    "preview",
    "tzdata_version",
    "zone_names",
]
