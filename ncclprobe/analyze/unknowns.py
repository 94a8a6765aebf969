"""What the evidence leaves open about who there is: ranks, members of groups, the size of the world.

In: a `Case`. Out: a `Gap` for each. What is known is analysed all the same.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.whose import find_owners
from ncclprobe.model.evidence import Gap
from ncclprobe.model.folding import name_ranks


def find_unknowns(case: Case) -> list[Gap]:
    """In no order."""
    return [
        *_missing_ranks(case),
        *_world_size(case),
        *_strangers(case),
        *_groups(case),
        *_nameless_dumps(case),
        *_nameless_stacks(case),
        *_other_jobs(case),
    ]


def _missing_ranks(case: Case) -> Iterator[Gap]:
    if case.missing:
        members = {rank for timeline in case.timelines for rank in timeline.members}
        known = f"the world size is {case.world_size}"
        if case.world_size is None:
            in_groups = "they are members of groups that others use"
            by_number = "ranks are numbered from 0, and higher ones were seen"
            known = in_groups if set(case.missing) <= members else by_number
        yield Gap(
            who=name_ranks(case.missing),
            what="nothing is known of them",
            why=f"{known}, and no process or file of theirs was found",
            action="add the hosts they run on, or look for how they ended: dmesg, the scheduler, the launcher's log",
        )


def _world_size(case: Case) -> Iterator[Gap]:
    if case.world_size is None and case.expected:
        yield Gap(
            who="the job",
            what="its world size is not known",
            why="no process was seen, and no dump names the members of the default group",
            action=f"see that {name_ranks(case.expected)} are all there are; a rank nobody speaks of may be the one",
        )


def _strangers(case: Case) -> Iterator[Gap]:
    """Members of groups beyond the world: two jobs may be mixed, or a process reports the wrong size."""
    members = {rank for timeline in case.timelines for rank in timeline.members}
    beyond = sorted(members.difference(case.expected))
    if case.world_size is not None and beyond:
        yield Gap(
            who=name_ranks(beyond),
            what="nothing is known of them",
            why=f"groups have them as members, yet the world size is {case.world_size}",
            action="analyse the evidence of one job at a time, and see which of the two is right",
        )


def _groups(case: Case) -> Iterator[Gap]:
    """Groups that no dump names the members of: gloo's, and those of torch 2.2 and older."""
    open_groups = sorted(
        {timeline.group.label for timeline in case.timelines if not timeline.group.ranks and case.world_size is None}
        | {t.group.label for t in case.timelines if not t.group.ranks and t.group.label != "default_pg"}
    )
    if open_groups:
        named = ", ".join(open_groups[:3]) + (f" and {len(open_groups) - 3} more" if len(open_groups) > 3 else "")
        yield Gap(
            who=f"group{'s' if len(open_groups) > 1 else ''} {named}",
            what="their members are not known" if len(open_groups) > 1 else "its members are not known",
            why="no dump lists them; those with calls in it are taken for all",
            action="get the dumps of all ranks: a member without one goes unnoticed",
        )


def _nameless_dumps(case: Case) -> Iterator[Gap]:
    nameless = [sourced.artifact.path for sourced in case.evidence.recordings if sourced.artifact.rank is None]
    if nameless:
        more = f" and {len(nameless) - 1} more" if len(nameless) > 1 else ""
        yield Gap(
            who=f"{nameless[0]}{more}",
            what="whose dump it is",
            why="neither its name nor its folder says which rank wrote it, and a dump itself does not",
            action="name each file by its global rank: comm_lib_trace_rank_3",
        )


def _nameless_stacks(case: Case) -> Iterator[Gap]:
    """Stacks given by hand of processes that nothing ties to a rank."""
    owned = {id(owned.sourced) for owned in find_owners(case.evidence.stacks, case.ranks, case.told, case.world_size)}
    useful = [s for s in case.evidence.stacks if s.record.main and not s.record.is_launcher]
    nobodys = sorted({s.artifact.path for s in useful if id(s) not in owned})
    if nobodys:
        yield Gap(
            who="all hosts",
            what=f"{len(nobodys)} files of stacks not used, the first being {nobodys[0]}",
            why="nothing tells of which rank these processes are",
            action="name the files after their ranks: rank3.txt",
        )


def _other_jobs(case: Case) -> Iterator[Gap]:
    for path in case.logs.foreign:
        yield Gap(
            who=path,
            what="it was left out",
            why="it is of another job: it says another world size than most logs, and has lines of the same ranks",
            action="analyse the logs of one job at a time",
        )
