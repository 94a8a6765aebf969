"""The command line: options to one workflow call to a renderer to an exit status.

In: words a person typed. Out: a report on standard output, everything else on standard error.
"""
