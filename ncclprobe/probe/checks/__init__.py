"""What `ncclprobe doctor` looks at besides trying the sources themselves: one file a check, each with a `SOURCE`.

In: a `Context`. Out: `Found`s of kind checkup. None of them disturbs the job.
"""
