"""Kinds of evidence, one file each; every module here defines `SOURCE`.

In: the ranks found on this host. Out: artifacts and gaps. A source knows no other source.
"""
