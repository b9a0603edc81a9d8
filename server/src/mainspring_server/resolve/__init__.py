"""Telling dependents: releases or cancels what waits for tasks that have ended."""
