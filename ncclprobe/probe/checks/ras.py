"""Would NCCL's RAS service be asked, and may it be?

In: the NCCL that the ranks have loaded, and their environment. Out: a check named ras. The service is not asked.
"""

from collections.abc import Iterator

from ncclprobe.model.checkup import Check, CheckState
from ncclprobe.model.evidence import Gap
from ncclprobe.probe import proc
from ncclprobe.probe.checkup import found
from ncclprobe.probe.nccl_library import Version, loaded_nccl
from ncclprobe.probe.source import Context, Disturbance, Found, Source
from ncclprobe.probe.sources.ras import FIRST_SAFE, FIRST_WITH_RAS


def collect(context: Context) -> Iterator[Found | Gap]:
    """One check for the host, by the oldest NCCL of its ranks."""
    libraries = [library for process in context.ranks if (library := loaded_nccl(process.pid)) is not None]
    environs = [proc.environ(process.pid) or {} for process in context.ranks]
    is_off = any(environ.get("NCCL_RAS_ENABLE") == "0" for environ in environs)
    versions = [library.version for library in libraries]
    yield found("ras", [judge(versions, is_off=is_off)])


def judge(versions: list[Version | None], *, is_off: bool) -> Check:
    """`versions`: of the NCCL of each rank that has one; None is unknown."""
    if not versions:
        return _check(CheckState.ABSENT, "no rank here has loaded an NCCL library")
    if None in versions:
        what = "the version of the loaded NCCL is not known, and some can crash when asked"
        return _check(CheckState.LIMITED, what, "allow it with --ras, if it is 2.28.7 or later")
    oldest = min(version for version in versions if version is not None)
    name = f"NCCL {'.'.join(map(str, oldest))}"
    if oldest < FIRST_WITH_RAS:
        return _check(CheckState.ABSENT, f"{name} has no RAS service", "2.24 and later have one")
    if is_off:
        return _check(CheckState.BLOCKED, f"NCCL_RAS_ENABLE is 0 ({name})", "leave it out the next time")
    if oldest < FIRST_SAFE:
        what = f"{name} can crash when asked, so it is asked only with --ras"
        return _check(CheckState.LIMITED, what, "2.28.7 and later are asked anyway")
    return _check(CheckState.OK, f"{name} may be asked")


def _check(state: CheckState, what: str, action: str = "") -> Check:
    return Check(name="ras", state=state, what=what, action=action)


SOURCE = Source(name="ras", disturbs=Disturbance.NOTHING, collect=collect)
