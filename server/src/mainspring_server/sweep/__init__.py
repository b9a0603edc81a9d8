"""The sweeper: the one recovery mechanism, over `next_check_at`."""
