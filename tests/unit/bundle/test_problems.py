from ncclprobe.bundle.problems import Problems
from ncclprobe.model.evidence import Gap


def test_equal_complaints_fold_into_one_gap_with_a_count() -> None:
    problems = Problems()
    for number in range(1000):
        problems.add(what=f"file{number}", why="a link", action="none")
    problems.add(who="node1", what="file1", why="a link", action="none")
    assert problems.gaps() == (
        Gap(who="bundle", what="file0 and 999 more", why="a link", action="none"),
        Gap(who="node1", what="file1", why="a link", action="none"),
    )
