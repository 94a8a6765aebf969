"""The code that a live dump runs inside the asked process, and the answer it writes.

In: a directory as the process sees it. Out: source that leaves a file `answer` there; and the parts of such a file.
An answer is, for each part, a line with its name and its size in bytes, then the bytes.
"""

from collections.abc import Iterator
from io import BytesIO

ANSWER = "answer"
RECORDERS = ("nccl", "c10d")

# For Python 3.8 and later, in a dictionary of its own. It imports only modules that every interpreter has loaded, and
# keeps no function: that would be a cycle that waits for the garbage collector, which training jobs switch off.
#
# The decoy: to name the frames, torch asks whether it has an attribute `_inductor`, and since that is loaded on first
# use, the question imports the whole compiler: 2 to 4 s with torch 2.13, and a thousand modules the job did not want.
# For our thread the decoy has nothing; any other thread that comes across it meanwhile gets the real thing.
_SOURCE = """\
try:
    import _thread, posix, sys, time
    posix.stat(directory)
    begin_ns = time.perf_counter_ns()
    parts = []
    binding = sys.modules.get("torch._C._distributed_c10d")
    if binding is None:
        what = "has no torch.distributed" if "torch" in sys.modules else "is not loaded"
        parts.append(("problem", b"torch " + what.encode()))
    torch = sys.modules.get("torch")
    ours = _thread.get_ident()
    decoy = type(sys)("torch._inductor")
    decoy.__getattr__ = lambda name: getattr(
        None if _thread.get_ident() == ours else __import__("torch._inductor") and sys.modules["torch._inductor"], name
    )
    is_open = torch is not None and "_inductor" not in vars(torch)
    if is_open:
        torch._inductor = decoy
    for recorder, name in (("nccl", "_dump_nccl_trace"), ("c10d", "_dump_fr_trace")):
        dump = getattr(binding, name, None)
        if dump is not None:
            try:
                parts.append((recorder, bytes(dump())))
            except BaseException as error:
                text = name + ": " + type(error).__name__ + ": " + str(error)
                parts.append(("problem", text.encode("utf-8", "replace")))
    if is_open and vars(torch).get("_inductor") is decoy:
        del torch._inductor
    del decoy
    parts.append(("held-ns", b"%d" % (time.perf_counter_ns() - begin_ns)))
    parts.append(("thread", b"%d" % _thread.get_native_id()))
    with open(directory + "/answer.part", "xb") as file:
        for name, data in parts:
            file.write(b"%s %d\\n" % (name.encode(), len(data)))
            file.write(data)
    posix.rename(directory + "/answer.part", directory + "/answer")
except BaseException:
    pass
"""


def source(directory: str) -> bytes:
    """Python source, to be run in `__main__`. It leaves no name there, raises nothing, and ends when nobody waits."""
    return f"exec({_SOURCE!r}, {{'directory': {directory!r}}})".encode()


def parts(answer: bytes) -> Iterator[tuple[str, bytes]]:
    """Its parts: any of RECORDERS, "problem" (text), "held-ns" and "thread" (numbers). Ends where the answer is cut."""
    stream = BytesIO(answer)
    while words := stream.readline(64).split():
        if len(words) != 2 or not words[1].isdigit():
            return
        data = stream.read(int(words[1]))
        if len(data) != int(words[1]):
            return
        yield words[0].decode(errors="replace"), data


def number(answer: bytes, name: str) -> int | None:
    """The first part of that name, when it is a number."""
    found = next((data for part, data in parts(answer) if part == name), b"")
    return int(found) if found.isdigit() and len(found) < 20 else None
