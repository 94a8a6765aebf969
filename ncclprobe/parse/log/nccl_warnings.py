"""What NCCL's warnings mean.

In: the text of a WARN, or of an INFO line that tells of trouble. Out: a fact: network, port, peer, set-up, GPU, or any.
"""

import re
from collections.abc import Callable

from ncclprobe.model.log import Failure, LogFact, NcclWarning, NetworkError, PeerLost, PortError, Raised, SetupError
from ncclprobe.parse.text import clean

_MAX_TEXT = 300
_WC_FLUSH = 5

# enum ibv_wc_status of libibverbs, in order.
_WC_STATUS = (
    *("SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR"),
    *("BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR"),
    *("RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR"),
    *("INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR"),
)

# To 2.20 `with error 12, opcode 0, ...`; to 2.27 `with status=12 opcode=0 ...`; then `status=IBV_WC_RETRY_EXC_ERR(12)`.
_COMPLETION = re.compile(
    r"Got completion from peer (?P<peer>\S{1,120}) with (?:error (?P<old>\d{1,4})"
    r"|status=(?:(?P<name>[^()\d][^()]{0,60})\((?P<named>\d{1,4})\)|(?P<number>\d{1,4})|(?P<bare>\w{1,60})))"
)
_HCA = re.compile(r"\bhca (\S{1,60})")
# `localGid X remoteGids::Y` of a completion, `local GID X, remote GID Y` of a call of libibverbs.
_LOCAL = re.compile(r"\blocal ?G[iI][dD] ([0-9a-fA-F:.]{2,60})")
_REMOTE = re.compile(r"\bremote ?G[iI][dD]s?\s?([0-9a-fA-F:.]{2,60})")
_ADDRESS = r"(?P<peer>\S{1,120})"
_PORT = re.compile(r"<\d{1,5}>$")

_CLOSED = re.compile(rf"Connection closed by remote peer(?: {_ADDRESS})?")
_SOCKET = (
    re.compile(
        rf"Call to (?:recv|send|recvmsg|sendmsg|readv|writev)\b(?: (?:from|to) {_ADDRESS})? ?(?:failed|returned)"
    ),
    re.compile(rf"[Cc]onnect(?:ing)? to {_ADDRESS} (?:returned|failed|timed out)"),
    re.compile(r"connect returned [\w ]{1,60}, exceeded error retry count"),
    re.compile(r"Call to connect(?: to (?P<peer>\S{1,120}))? (?:failed|returned)"),
    re.compile(r"exceeded (?:error )?retr(?:y count|ies)"),
    re.compile(r"Call to ibv_\w{1,60} failed"),
)
_FROM_THE_PEER = re.compile(r"reset by peer|Broken pipe|closed by remote", re.IGNORECASE)
_VERBS_DEVICE = re.compile(r"\bdev ([\w.\-]{1,60}(?::\d{1,3})?)")
_RETRYING = re.compile(r"connect(?: to (?P<peer>\S{1,120}))? returned ([\w ]{1,60}), retrying")

# `NET/IB : mlx5_0:1 Got async event : port error`; since 2.23 `async fatal event: X`, `Got non-fatal async event: X`.
_EVENT = re.compile(
    r"NET/IB\w* ?:? ?(?P<device>(?!Got\b)[\w.\-]{1,60}(?::\d{1,3})?) (?:Got )?(?:non-fatal )?async (?:fatal )?event"
    r"(?: on (?P<queue>QP|CQ|SRQ))?[^:]{0,60}: ?(?P<what>.{0,120})"
)
_EVENT_WITHOUT_DEVICE = re.compile(r"NET/IB\w* ?: ?Got async event ?: ?(?P<what>.{0,120})")
_PORT_EVENT = re.compile(r"port error|link down|device fatal|local catastrophic|internal error", re.IGNORECASE)
_QUEUE_EVENT = re.compile(
    r"CQ error|work queue|catastrophic|fatal|access violation|path migration request", re.IGNORECASE
)

_LOCAL_RANK = re.compile(r"\blocalRank (\d{1,5})")
_PEER_LOST = re.compile(
    r"\[Service thread\] |\[Proxy Service|Proxy [Cc]all to rank \d|Socket recv failed while polling"
    r"|\[Progress Thread\].{0,60}closed"
)

_SETUP = (
    re.compile(r"Mismatched NCCL version detected ?: ?rank (\d{1,7}) version \d+ rank (\d{1,7}) version"),
    re.compile(r"Duplicate GPU detected ?: ?rank (\d{1,7}) and rank (\d{1,7}) both"),
    re.compile(r"mismatch in info from procs"),
    re.compile(r"rank (\d{1,7}) of \d{1,7} ranks has already checked in"),
    re.compile(r"connecting to address\b.{0,80}\bwith family 0 is neither"),
    re.compile(r"no (?:socket )?interface found|No usable listening interface|No IP interface|invalid interface", re.I),
    re.compile(r"Invalid NCCL_(?:COMM_ID|SOCKET_IFNAME|SOCKET_FAMILY)|NCCL_COMM_ID.{0,80}(?:invalid|not found)"),
    re.compile(r"\bshm/nccl-|shared memory.{0,80}(?:failed|No space)|/nccl-\w{1,12}\b.{0,80}No space left"),
)

_CUDA = re.compile(
    r"(?:Cuda failure|CUDA error|cuda error|Failed to CUDA \w+)\b:?(?: \d{1,4})?(?: ?'([^']{1,200})'|:? ?(.{1,200}))?"
)
_GPU_LOST = re.compile(r"GPU is lost|GPU requires reset|fallen off the bus", re.I)
_GPU_FAULT = re.compile(r"uncorrectable|\bECC\b|hardware|nvlink|lost|row remap|contained error", re.I)
_AT_EXIT = re.compile(r"driver shutting down|context is destroyed|already enabled|deinitialized", re.I)


def fact_of_warning(message: str) -> LogFact:
    """What a WARN tells; `NcclWarning` for one without a rule."""
    for read in _RULES:
        fact = read(message)
        if fact is not None:
            return fact
    return NcclWarning(text=clean(message, _MAX_TEXT))


def fact_of_info(message: str) -> LogFact | None:
    """What an INFO line tells of a peer that is gone or does not listen yet."""
    if "Connection closed by localRank" in message:
        return _peer_lost(message)
    if _RETRYING.search(message):
        return NcclWarning(text=clean(message, _MAX_TEXT))
    return None


def _completion(message: str) -> NetworkError | None:
    found = _COMPLETION.search(message)
    if found is None:
        return None
    status = _status(found)
    return NetworkError(
        text=clean(message, _MAX_TEXT),
        peer=_host(found["peer"]),
        status=status,
        device=_first(_HCA, message),
        local_address=_first(_LOCAL, message),
        remote_address=_first(_REMOTE, message),
        is_echo=status == _WC_FLUSH,
    )


def _status(found: re.Match[str]) -> int | None:
    number = found["old"] or found["named"] or found["number"]
    if number is not None:
        return int(number)
    name = (found["bare"] or "").removeprefix("IBV_WC_")
    return _WC_STATUS.index(name) if name in _WC_STATUS else None


def _port(message: str) -> LogFact | None:
    found = _EVENT.search(message) or _EVENT_WITHOUT_DEVICE.search(message)
    if found is None:
        return None
    device = clean(found.groupdict().get("device") or "").strip(" :")
    text = clean(message, _MAX_TEXT)
    if _PORT_EVENT.search(found["what"]):
        return PortError(device=device, text=text)
    if found.groupdict().get("queue") or _QUEUE_EVENT.search(found["what"]) or "fatal event" in message:
        return NetworkError(text=text, device=device)
    return NcclWarning(text=text)


def _socket(message: str) -> NetworkError | None:
    closed = _CLOSED.search(message)
    if closed is not None:
        return NetworkError(text=clean(message, _MAX_TEXT), peer=_host(closed["peer"]), is_echo=True)
    found = next((match for rule in _SOCKET if (match := rule.search(message))), None)
    if found is None:
        return None
    return NetworkError(
        text=clean(message, _MAX_TEXT),
        peer=_host(found.groupdict().get("peer")),
        device=_first(_VERBS_DEVICE, message) if "ibv_" in message else "",
        local_address=_first(_LOCAL, message),
        remote_address=_first(_REMOTE, message),
        is_echo=_FROM_THE_PEER.search(message) is not None,
    )


def _peer_lost(message: str) -> PeerLost | None:
    if not _PEER_LOST.search(message):
        return None
    local = _LOCAL_RANK.search(message)
    return PeerLost(local_rank=int(local[1]) if local else None, reason=clean(message, _MAX_TEXT))


def _setup(message: str) -> SetupError | None:
    for rule in _SETUP:
        if found := rule.search(message):
            return SetupError(text=clean(message, _MAX_TEXT), ranks=tuple(map(int, found.groups())))
    return None


def _gpu(message: str) -> Raised | None:
    if _GPU_LOST.search(message):
        return _raised(message, Failure.GPU_FAULT)
    found = _CUDA.search(message)
    if found is None or _AT_EXIT.search(message):
        return None
    reason = found[1] or found[2] or ""
    if "out of memory" in reason:
        return _raised(message, Failure.GPU_MEMORY)
    return _raised(message, Failure.GPU_FAULT if _GPU_FAULT.search(reason) else Failure.GPU_ERROR)


def _raised(message: str, failure: Failure) -> Raised:
    return Raised(exception="NCCL WARN", message=clean(message, _MAX_TEXT), failure=failure)


_RULES: tuple[Callable[[str], LogFact | None], ...] = (_completion, _port, _setup, _gpu, _peer_lost, _socket)


def _host(address: str | None) -> str:
    """`10.0.0.2<45763>` without the port, which says nothing: it is a new one for each connection."""
    return clean(_PORT.sub("", (address or "").rstrip(",.:")))


def _first(pattern: re.Pattern[str], message: str) -> str:
    found = pattern.search(message)
    return clean(found[1]) if found else ""
