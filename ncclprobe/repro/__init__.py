"""Programs that hang on demand, each with the verdict it must yield.

In: a name and options. Out: a running job of real processes, stuck as real ones are.
"""
