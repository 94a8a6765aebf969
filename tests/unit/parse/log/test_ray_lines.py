"""What Ray says of its dead."""

from ncclprobe.model.log import Died, HostDown, LogEvent, StoppedByLauncher
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.ray_lines import RECOGNIZER

CAUSES = " There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory."
ACTOR = [
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "\tclass_name: Worker",
    "\tactor_id: 7711c0aa",
    "\tpid: 40210",
    "\tip: 10.0.5.12",
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file." + CAUSES,
]


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


def test_a_dead_actor_has_the_pid_and_address_above() -> None:
    (event,) = heard(*ACTOR)
    assert isinstance(event.what, Died)
    assert (event.pid, event.host, event.what.signal) == (40210, "10.0.5.12", None)


def test_the_list_of_potential_causes_is_no_proof_of_a_kill() -> None:
    (event,) = heard(
        "A worker died or was killed while executing a task by a system error. Node ID: 9 Worker IP address: "
        "10.0.5.12 Worker port: 10007 Worker PID: 40210 Worker exit type: SYSTEM_ERROR Worker exit detail: End of file."
        + CAUSES
    )
    assert isinstance(event.what, Died)
    assert (event.pid, event.host, event.what.is_memory) == (40210, "10.0.5.12", False)
    assert "OOM" not in event.what.reason


def test_short_lines() -> None:
    (event,) = heard("actor k3Worker_1:2 (pid 40210, ip 10.0.5.12) died unexpectedly")
    assert (event.pid, event.host) == (40210, "10.0.5.12")
    (stopped,) = heard("Worker PID: 7 Worker exit type: INTENDED_SYSTEM_EXIT Worker exit detail: by ray stop")
    assert isinstance(stopped.what, StoppedByLauncher)


def test_rays_own_memory_monitor_is_proof() -> None:
    text = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory. "
    (event,) = heard(text + "Memory on the node (IP: 10.0.0.2, ID: 9) where the task (task ID: f, pid=4021, m) ran")
    assert isinstance(event.what, Died)
    assert (event.pid, event.host, event.what.is_memory) == (4021, "10.0.0.2", True)
    (counted,) = heard(
        "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 at node (ID: 9, IP: 10.0.0.2)"
    )
    assert counted.host == "10.0.0.2"
    assert heard("0 Workers (tasks / actors) killed due to memory pressure (OOM), 3 Workers crashed") == []


def test_a_dead_node() -> None:
    (event,) = heard(
        "The node with node id: 9f and address: 10.0.5.13 and node name: n has been marked dead because the detector "
        "has missed too many heartbeats from it."
    )
    assert isinstance(event.what, HostDown)
    assert event.what.host == "10.0.5.13"
