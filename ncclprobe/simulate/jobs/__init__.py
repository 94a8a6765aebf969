"""Jobs that can be simulated: what each of their ranks issues, step after step.

In: a number of ranks. Out: a `Job`. A module of this package that defines `JOB` is one; there is no other list.
"""
