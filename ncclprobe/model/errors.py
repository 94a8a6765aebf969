"""Errors a person can act on.

In: what went wrong and what to do about it. Out: exceptions the command line prints as two lines, never as a traceback.
"""


class NcclprobeError(Exception):
    """One line of what is wrong (`str(error)`) and one of what to do (`error.advice`)."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


class UsageError(NcclprobeError):
    """The request cannot be carried out as written: a bad hosts file, an ambiguous job, a missing path."""


class CollectionError(NcclprobeError):
    """Nothing could be collected at all, from any host."""


class BundleError(NcclprobeError):
    """A bundle that cannot be opened, or must not be trusted."""


class ParseError(NcclprobeError):
    """Bytes that are not what they were taken for; nothing of them could be read."""

    def __init__(self, what: str, advice: str = "collect the file again, or leave it out") -> None:
        super().__init__(what, advice)
