"""Faults to plant, one file a cause.

In: a `Scene`. Out: what is `Planted`. A module of this package defines its `SCENARIOS`; there is no other list of them.
"""
