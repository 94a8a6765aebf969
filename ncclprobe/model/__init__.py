"""Frozen types and errors that the other packages hand to one another; imports nothing of ours.

In: nothing. Out: the words of the field as types. `None` is unknown, never zero; rank 0 and sequence number 0 are real.
"""
