"""The controller: asks every host at once for its evidence and writes what comes into a bundle.

In: hosts and options. Out: a bundle, complete or not, within the deadline.
"""
