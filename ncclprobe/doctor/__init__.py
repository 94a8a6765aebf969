"""How a checkup is shown: console and JSON.

In: a `Checkup`. Out: text.
"""
