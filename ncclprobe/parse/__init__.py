"""Formats: bytes to records and gaps; pure, standard library only.

In: the bytes of an artifact. Out: `Parsed` (in `parsed.py`) records; ParseError when nothing can be read.
"""
