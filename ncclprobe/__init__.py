"""ncclprobe: names the rank that hung a multi-GPU job, the line of code it is at, and why.

In: a stuck job on this machine or on hosts reached over SSH, or a bundle of evidence collected earlier.
Out: a report with one verdict. The public Python API is `ncclprobe.workflow`; the command line is `ncclprobe.cli`.
"""

__version__ = "0.1.0"
