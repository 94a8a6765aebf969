"""Which of a process's flight recorders speak for it: since torch 2.8 it has one of NCCL and one for other backends."""


def with_entries(dumps: dict[str, bytes]) -> dict[str, bytes]:
    """Those with an entry, or all when none has one; pickles or JSON, by recorder.

    An empty recorder beside a filled one says nothing, and would read as a rank that waits for nobody.
    """
    filled = {name: data for name, data in dumps.items() if b"profiling_name" in data}
    return filled or dumps
