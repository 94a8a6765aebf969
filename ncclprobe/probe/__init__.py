"""What runs on a host: standard library and pynvml only, on any Python from 3.10.

In: a request on standard input. Out: one tar stream on standard output, each artifact as it is read.
"""
