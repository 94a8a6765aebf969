"""From records to a verdict; pure, and the same for any order of files and hosts.

In: parsed evidence. Out: a `Report`.
"""
