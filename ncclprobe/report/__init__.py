"""Renderings of a report, one file a format.

In: a `Report`. Out: text; the console's is a Rich renderable.
"""
