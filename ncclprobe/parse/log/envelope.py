"""Lines that a container runtime, a log shipper or the journal wrapped in a format of its own.

In: a line. Out: the program's own lines, and who and when the wrapping says.
"""

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_INNER_LINES = 200
_TEXTS = ("log", "message", "MESSAGE", "msg", "line", "text", "body", "textPayload")
_TRACEBACKS = ("exc_info", "exc_text", "exception", "traceback", "stack_trace")
_TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime", "__REALTIME_TIMESTAMP")
_HOSTS = ("host", "hostname", "_HOSTNAME", "node", "node_name", "pod", "pod_name")
_RANKS = ("rank", "global_rank", "RANK")
_PIDS = ("pid", "process", "_PID")

# A JSON line that was cut still shows the text it began with.
_CUT_JSON = re.compile(r'\{[^{}]{0,400}?"(?:log|message|msg|line)"\s*:\s*"(?P<text>(?:[^"\\]|\\.)*)')
# containerd and CRI-O: time, stream, F (full) or P (partial); `kubectl logs --timestamps` and `docker logs -t`: time.
_CRI = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d)) (?:(?:stdout|stderr) [FP] )?")
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?"
    r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d)?) "
    r"(?!(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)(?P<host>[A-Za-z0-9][\w.-]*) "
    r"(?P<program>[\w./@() -]{1,64}?)(?:\[(?P<pid>\d{1,9})\])?: "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """What was inside; fields are None where the wrapping says nothing. `time` is still text."""

    lines: tuple[str, ...]
    time: str | None = None
    host: str | None = None
    pid: int | None = None
    rank: int | None = None


def unwrap(text: str) -> Inner | None:
    """None when the line is not wrapped."""
    first = text[:1]
    if first == "{":
        return _from_json(text)
    if first.isdigit() and (found := _CRI.match(text)):
        inner = unwrap(text[found.end() :]) if text[found.end() :].startswith("{") else None
        return inner or Inner(lines=(text[found.end() :],), time=found["time"])
    if first.isalnum() or first == "<":
        return _from_syslog(text)
    return None


def _from_syslog(text: str) -> Inner | None:
    found = _SYSLOG.match(text)
    if not found:
        return None
    pid = int(found["pid"]) if found["pid"] else None
    return Inner(lines=(text[found.end() :],), time=found["time"], host=found["host"], pid=pid)


def _from_json(text: str) -> Inner | None:
    if not any(f'"{name}"' in text for name in _TEXTS):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return _from_cut_json(text)
    if not isinstance(fields, dict):
        return None
    fields = _of_cloud(fields)
    written = _first(fields, _TEXTS, str)
    if written is None:
        return None
    kubernetes = fields.get("kubernetes")
    host = _first(fields, _HOSTS, str) or (_first(kubernetes, _HOSTS, str) if isinstance(kubernetes, dict) else None)
    return Inner(
        lines=(*_split(written), *_split(_first(fields, _TRACEBACKS, str) or "")),
        time=_time(_first(fields, _TIMES, (str, int, float))),
        host=host,
        pid=_whole(_first(fields, _PIDS, (str, int))),
        rank=_whole(_first(fields, _RANKS, (str, int))),
    )


def _of_cloud(fields: dict[str, Any]) -> dict[str, Any]:
    """Google's export has the program's own record in `jsonPayload`, and names the pod in the resource's labels."""
    payload, resource = fields.get("jsonPayload"), fields.get("resource")
    labels = resource.get("labels") if isinstance(resource, dict) else None
    pod = labels.get("pod_name") if isinstance(labels, dict) else None
    return ({"pod_name": pod} if pod else {}) | fields | (payload if isinstance(payload, dict) else {})


def _from_cut_json(text: str) -> Inner | None:
    found = _CUT_JSON.match(text)
    if not found:
        return None
    written = found["text"].replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
    return Inner(lines=_split(written))


def _split(written: str) -> tuple[str, ...]:
    return tuple(line for line in re.split(r"[\r\n]+", written)[:MAX_INNER_LINES] if line)


def _first(fields: Mapping[str, Any], names: tuple[str, ...], kind: "type | tuple[type, ...]") -> Any:
    return next((fields[name] for name in names if isinstance(fields.get(name), kind)), None)


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _time(value: "str | float | None") -> str | None:
    """Numbers count s, ms, us or ns since 1970, as their size tells (the journal counts us)."""
    if value is None or isinstance(value, bool):
        return None
    text = str(value)
    if not re.fullmatch(r"\d{9,19}(\.\d{1,9})?", text):
        return text
    whole, _, part = text.partition(".")
    digits = whole + (part if len(whole) <= 10 else "")
    seconds, rest = int(digits[:10]), digits[10:19]
    return _iso(seconds) + (f".{rest}" if rest else "") + "Z"


def _iso(seconds: int) -> str:
    when = datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)
    return when.strftime("%Y-%m-%dT%H:%M:%S")
