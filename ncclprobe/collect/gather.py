"""Asks all hosts at once and writes what they answer into a bundle, within one deadline.

In: hosts, a transport, a request. Out: one `Answer` per host, in the order of the hosts.
"""

import copy
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.collect import kit
from ncclprobe.collect.answer import Answer, read_answer
from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import HostError, RemoteProcess, SilentHostError, Transport
from ncclprobe.collect.transport.local import LocalTransport
from ncclprobe.probe.selection import Selection
from ncclprobe.probe.source import Options

MAX_AT_ONCE = 64
_TIME_TO_ANSWER_S = 3.0  # kept back from the deadline, so that a host whose sources time out can still say so
_TIME_TO_CLOSE_S, _SHARE_TO_CLOSE = 1.0, 0.1  # kept back to let go of hosts that have not answered
_PATIENCE_S = 4.0  # for probes to end and clean up when the collection is interrupted
_INTERRUPTED = ("the collection was interrupted", "collect again, and let it come to its end")
_TOO_LATE = ("the deadline passed", "allow more time with --deadline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every host is asked for. `deadline_s` is for the whole collection; `purpose`: "evidence" or "checkup"."""

    options: Options = field(default_factory=Options)
    selection: Selection = field(default_factory=Selection)
    deadline_s: float = 60.0
    purpose: str = "evidence"


def gather(
    hosts: Iterable[Host],
    transport: Transport,
    request: Request,
    writer: BundleWriter,
    on_answer: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """Every host ends as an answer: a failure becomes its gap. Returns by the deadline, whatever the hosts do.

    When it is interrupted, what came is in the bundle, and each host without an answer has a gap that says why.
    """
    deadline = time.monotonic() + request.deadline_s
    wanted = list(hosts)
    run = _Run(wanted, transport, request, writer)
    answers: list[Answer | None] = [None] * len(wanted)
    end, patience_s = _INTERRUPTED, _PATIENCE_S
    try:
        run.start()
        for _ in wanted:
            place, answer = run.done.get(timeout=max(0.0, deadline - time.monotonic()))
            answers[place] = answer
            writer.add_host(answer.outcome)
            on_answer(answer)
    except queue.Empty:
        end, patience_s = _TOO_LATE, 0.1
    finally:
        _give_up_on_the_rest(run, answers, *end)
        run.close(patience_s)
    return [answer for answer in answers if answer is not None]


def _give_up_on_the_rest(run: "_Run", answers: list[Answer | None], why: str, action: str) -> None:
    """A copy of what each has so far: a thread that comes back late must not change what was reported."""
    for place, answer in enumerate(answers):
        if answer is None:
            given_up = copy.deepcopy(run.answers[place])
            what = "the rest of its evidence" if given_up.artifact_count else "no evidence from this host"
            given_up.add_gap(what, why, action)
            answers[place] = given_up
            run.writer.add_host(given_up.outcome)


class _Run:
    """What the threads of one collection share."""

    def __init__(self, hosts: Sequence[Host], transport: Transport, request: Request, writer: BundleWriter) -> None:
        limit_s = request.deadline_s
        self.deadline = time.monotonic() + limit_s - min(_TIME_TO_CLOSE_S, _SHARE_TO_CLOSE * limit_s)
        self.transport = transport
        self.request = request
        self.writer = writer
        self.answers = [Answer(host.name, host.address) for host in hosts]
        self.done: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[tuple[int, Host]] = queue.SimpleQueue()
        for pair in enumerate(hosts):
            self._waiting.put(pair)
        self._open: set[RemoteProcess] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        self._kit = kit.build(compressed=not isinstance(transport, LocalTransport))

    def start(self) -> None:
        """Sets threads to work, one a host up to `MAX_AT_ONCE`."""
        for _ in range(min(MAX_AT_ONCE, len(self.answers))):
            threading.Thread(target=self._work, daemon=True).start()

    def close(self, patience_s: float) -> None:
        """Lets go of every host still at work, all at once, so that its probe ends and cleans up."""
        with self._lock:
            self._is_closed = True
            left = list(self._open)
        threads = [threading.Thread(target=process.close, daemon=True) for process in left]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + patience_s
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))

    def _work(self) -> None:
        """Asks hosts until none waits."""
        with suppress(queue.Empty):
            while not self._is_closed:
                place, host = self._waiting.get_nowait()
                self._ask(host, self.answers[place])
                self.done.put((place, self.answers[place]))

    def _ask(self, host: Host, answer: Answer) -> None:
        try:
            process = self.transport.start(host, kit.COMMAND, self._payload(host), self.deadline)
            try:
                if self._note_open(process):
                    read_answer(process, answer, self.writer)
            finally:
                process.close()
                with self._lock:
                    self._open.discard(process)
        except HostError as error:
            answer.is_silent = isinstance(error, SilentHostError)
            answer.add_gap("no evidence from this host", str(error), error.advice)
        except Exception as error:  # noqa: BLE001 - one host must never take the others down
            why = f"{type(error).__name__}: {error}"
            answer.add_gap("no evidence from this host", why[:300], "report this as a bug")

    def _note_open(self, process: RemoteProcess) -> bool:
        """Whether there is still somebody to listen to it."""
        with self._lock:
            if not self._is_closed:
                self._open.add(process)
            return not self._is_closed

    def _payload(self, host: Host) -> bytes:
        left_s = self.deadline - time.monotonic()
        body = {
            "host": host.name,
            "deadline_s": max(1.0, left_s - _TIME_TO_ANSWER_S),
            "options": asdict(self.request.options),
            "selection": asdict(self.request.selection),
            "purpose": self.request.purpose,
        }
        return kit.payload(self._kit, body)
