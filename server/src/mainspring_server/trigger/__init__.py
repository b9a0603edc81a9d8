"""Firing what falls due: the trigger, the pager that fills its wheel, and who owns which shard."""
