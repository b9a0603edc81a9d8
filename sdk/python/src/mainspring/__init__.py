"""Client for the Mainspring job scheduler."""

__version__ = "0.1.0"
