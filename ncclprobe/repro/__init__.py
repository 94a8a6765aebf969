"""Programs that hang on demand, each with the verdict it must yield.

In: a name and options. Out: a running job of real processes, stuck as real ones are. Every module here that defines
`REPRO` is a reproducer; the program it starts is the file of the same name in `programs/`.
"""
