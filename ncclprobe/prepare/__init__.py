"""Before the next hang: the environment that makes it diagnosable, and what is wrong with the one a job has.

In: environments. Out: what to set, and findings. Pure: nothing is read and nothing is changed here.
"""
