"""The one hand-over between collecting and analysing.

In: artifacts as they come. Out: a directory or archive that can be read again, and checked while it is.
"""
