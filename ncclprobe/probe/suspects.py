"""Which ranks of a host deserve a closer look.

In: py-spy's JSON of each. Out: pids, the most suspicious first, then one of the crowd to compare them with.
"""

from collections import defaultdict
from collections.abc import Mapping

from ncclprobe.model.errors import ParseError
from ncclprobe.model.frames import Stack, trace_of
from ncclprobe.parse import stacks

# Below any of these a rank waits for others, or for the GPU that does.
_WAITING_FILES = ("torch/distributed/", "torch/autograd/graph.py", "torch/cuda/", "torch/nn/parallel/distributed.py")


def find_suspects(dumps: Mapping[int, bytes]) -> tuple[int, ...]:
    """Ranks that are where few are, those outside torch's own waits first; of the largest crowd only the first.

    Where no crowd is the largest all are suspects: two ranks at two places accuse each other.
    """
    places: dict[object, list[int]] = defaultdict(list)
    outside = set()
    for pid, data in dumps.items():
        stack = _main_stack(data)
        places[trace_of(stack)].append(pid)
        if not any(part in frame.file for frame in stack for part in _WAITING_FILES):
            outside.add(pid)
    crowds = sorted(places.values(), key=len)
    is_clear = len(crowds) < 2 or len(crowds[-1]) > len(crowds[-2])
    odd = [pid for crowd in (crowds[:-1] if is_clear else crowds) for pid in crowd]
    return (*sorted(odd, key=lambda pid: pid not in outside), *(crowds[-1][:1] if crowds and is_clear else ()))


def _main_stack(data: bytes) -> Stack:
    try:
        main = stacks.parse(data).records[0].main
    except ParseError:
        return ()
    return main.stack if main else ()
