"""Which lines of a training script only some ranks reach."""

import warnings

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.source import Branch, SourceFile
from ncclprobe.parse.user_code import MAX_BYTES, parse

WORLD = range(4)
EVERYBODY = set(WORLD)


def read(source: str) -> SourceFile:
    parsed = parse(source.encode())
    assert parsed.problems == ()
    return parsed.records[0]


def branch(source: str, mark: str = "HERE") -> Branch | None:
    """The innermost branch around the line that holds `mark`."""
    file = read(source)
    number = next(number for number, line in enumerate(file.lines, start=1) if mark in line)
    return file.branch_at(number)


def reached_by(source: str, mark: str = "HERE", local_world: int = 2) -> set[int]:
    """The ranks of four, two a host, that can reach the line."""
    found = branch(source, mark)
    return {rank for rank in WORLD if found is None or found.taken_by.admits(rank, rank % local_world)}


FIRST_ONLY = [
    "rank == 0",
    "0 == rank",
    "not rank",
    "rank < 1",
    "rank <= 0",
    "1 > rank",
    "rank in (0,)",
    "rank in [0]",
    "not rank > 0",
    "not (rank != 0)",
    "dist.get_rank() == 0",
    "torch.distributed.get_rank() == 0",
    "self.rank == 0",
    "args.global_rank == 0",
    "self.trainer.is_global_zero",
    "trainer.is_world_process_zero()",
    "accelerator.is_main_process",
    "PartialState().is_main_process",
    "is_main_process()",
    "is_master",
    "master_process",
    "is_rank_0()",
    "is_rank0",
    "rank_zero",
    'os.environ["RANK"] == "0"',
    'int(os.environ["RANK"]) == 0',
    'int(os.environ.get("RANK", 0)) == 0',
    'int(os.getenv("SLURM_PROCID")) == 0',
    "rank == 0 and step % 100 == 0",
    "step % 100 == 0 and rank == 0",
    "rank == 0 and (debug or verbose)",
    "not (rank != 0 or debug)",
    "not dist.is_initialized() or dist.get_rank() == 0",
    "not torch.distributed.is_available() or torch.distributed.get_rank() == 0",
    "world_size == 1 or rank == 0",
    "rank is not None and not rank",
    "(rank := dist.get_rank()) == 0",
    "-1 < rank < 1",
]


@pytest.mark.parametrize("test", FIRST_ONLY)
def test_conditions_for_rank_0(test: str) -> None:
    source = f"if {test}:\n    log()  # HERE\n"
    assert reached_by(source) == {0}
    found = branch(source)
    assert found is not None
    assert found.line == 1
    assert found.text.startswith("if ")


@pytest.mark.parametrize(
    ("test", "ranks"),
    [
        ("rank != 0", {1, 2, 3}),
        ("rank", {1, 2, 3}),
        ("rank > 0", {1, 2, 3}),
        ("rank >= 2", {2, 3}),
        ("not is_main_process()", {1, 2, 3}),
        ("rank in (0, 1)", {0, 1}),
        ("rank not in {0, 3}", {1, 2}),
        ("rank == 0 or rank == 2", {0, 2}),
        ("rank != 0 and rank != 3", {1, 2}),
        ("0 < rank <= 2", {1, 2}),
        ("rank == 3 and cond()", {3}),
        ("local_rank == 0", {0, 2}),
        ("args.local_rank in [-1, 0]", {0, 2}),
        ("accelerator.is_local_main_process", {0, 2}),
        ('int(os.environ["LOCAL_RANK"]) > 0', {1, 3}),
    ],
)
def test_conditions_for_other_ranks(test: str, ranks: set[int]) -> None:
    assert reached_by(f"if {test}:\n    log()  # HERE\n") == ranks


NOT_CONSTANT = [
    "rank % 8 == 0",
    "rank != world_size - 1",
    "rank == world_size - 1",
    "rank == dst",
    "rank == args.master",
    "world_size > 1",
    "dist.is_initialized()",
    "rank in members",
    "rank is None",
    "0 in rank",
    "rank > 0.5",
    "node_rank == 0",
    "tp_rank == 0",
    "self.pp_rank == 0",
    "dist.get_rank(group) == 0",
    "dist.get_rank(group=self.group) == 0",
    "self.dp_group.rank() == 0",
    "mesh.get_local_rank() == 0",
    "mpu.get_rank() == 0",
    "first",
    "is_first",
    "main",
    "is_last_rank()",
    "matrix.rank() if x else y",
    "rank == 0 if x else y",
    "matrix.rank() == 0",
    "torch.cuda.is_available()",
    "rank == 10**9",
    "[rank == 0]",
]


@pytest.mark.parametrize("test", NOT_CONSTANT)
def test_what_the_text_cannot_tell_is_not_told(test: str) -> None:
    source = f"if {test}:\n    a()  # HERE\nelse:\n    b()  # THERE\n"
    assert reached_by(source) == EVERYBODY
    assert reached_by(source, "THERE") == EVERYBODY


def test_elif_and_else_know_what_came_before() -> None:
    source = """
if rank == 0:
    a()  # A
elif rank == 1:
    b()  # B
elif debug:
    c()  # C
else:
    d()  # D
"""
    assert [reached_by(source, mark) for mark in ("# A", "# B", "# C", "# D")] == [{0}, {1}, {2, 3}, {2, 3}]


def test_the_else_of_a_partly_known_condition_is_unknown() -> None:
    source = "if rank == 0 and debug:\n    a()  # HERE\nelse:\n    b()  # THERE\n"
    assert reached_by(source) == {0}
    assert reached_by(source, "THERE") == EVERYBODY
    source = source.replace("and", "or")
    assert reached_by(source) == EVERYBODY
    assert reached_by(source, "THERE") == {1, 2, 3}
    source = source.replace("debug", "local_rank == 0")
    assert reached_by(source) == EVERYBODY
    assert reached_by(source, "THERE") == {1, 3}


def test_nested_conditions_narrow() -> None:
    source = """
def step():
    if rank < 3:
        for batch in loader:
            with context():
                try:
                    if rank != 0:
                        a()  # HERE
                    else:
                        b()  # THERE
                finally:
                    c()  # LAST
"""
    assert reached_by(source) == {1, 2}
    assert reached_by(source, "THERE") == {0}
    assert reached_by(source, "LAST") == {0, 1, 2}


@pytest.mark.parametrize(
    "leave", ["return", "return 3", "raise SystemExit", "sys.exit(0)", "exit()", "os._exit(1)", "continue", "break"]
)
def test_after_a_guard_only_the_others_go_on(leave: str) -> None:
    source = f"""
def save():
    for _ in range(2):
        before()  # BEFORE
        if rank != 0:
            {leave}
        after()  # HERE
        if debug:
            more()  # THERE
    end()  # END
"""
    assert reached_by(source) == {0}
    assert reached_by(source, "THERE") == {0}
    assert reached_by(source, "BEFORE") == EVERYBODY
    assert reached_by(source, "END") == EVERYBODY
    found = branch(source)
    assert found is not None
    assert (found.line, found.text) == (5, f"after if rank != 0: {leave}")


def test_a_guard_whose_else_leaves() -> None:
    assert reached_by("def f():\n    if rank == 0:\n        a()\n    else:\n        return\n    b()  # HERE\n") == {0}
    assert (
        reached_by("def f():\n    if rank == 0:\n        return\n    else:\n        return\n    b()  # HERE\n")
        == EVERYBODY
    )


def test_a_condition_that_leaves_somewhere_inside_is_no_guard() -> None:
    source = "def f():\n    if rank != 0:\n        if debug:\n            return\n    b()  # HERE\n"
    assert reached_by(source) == EVERYBODY


@pytest.mark.parametrize(
    ("decorator", "ranks"),
    [
        ("rank_zero_only", {0}),
        ("utilities.rank_zero_only", {0}),
        ("rank_zero_only()", {0}),
        ("accelerator.on_main_process", {0}),
        ("accelerator.on_local_main_process", {0, 2}),
        ("torch.no_grad()", EVERYBODY),
        ("rank_zero_first", EVERYBODY),
    ],
)
def test_decorators(decorator: str, ranks: set[int]) -> None:
    source = f"class T:\n    @property\n    @{decorator}\n    def save(self):\n        a()\n        b()  # HERE\n"
    assert reached_by(source) == ranks


def test_conditional_expressions() -> None:
    source = """
x = gather(y) if rank == 0 else None  # ONE
x = (
    first()  # TWO
    if rank == 0
    else second()  # THREE
)
x = gather(y) if rank == 0 else scatter(y)  # FOUR
dist.broadcast(x if rank == 0 else empty(), 0)  # FIVE
return_value = None if rank else log(x)  # SIX
"""
    marks = ("ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX")
    assert [reached_by(source, mark) for mark in marks] == [{0}, {0}, {1, 2, 3}, EVERYBODY, EVERYBODY, {0}]


def test_a_body_on_the_line_of_its_condition() -> None:
    assert reached_by("if rank == 0: log()  # HERE\n") == {0}
    assert reached_by("if dist.get_rank() == 0: log()  # HERE\n") == {0}
    # The line is also where every rank calls `agree`.
    assert reached_by("if rank == 0 and agree(x): log()  # HERE\n") == EVERYBODY


def test_match() -> None:
    source = """
match rank:
    case 0:
        a()  # A
    case 1 if debug:
        b()  # B
    case 1 | 2:
        c()  # C
    case _:
        d()  # D
match command:
    case 0:
        e()  # E
"""
    marks = ("# A", "# B", "# C", "# D", "# E")
    assert [reached_by(source, mark) for mark in marks] == [{0}, {1}, {1, 2}, {3}, EVERYBODY]


def test_while() -> None:
    assert reached_by("while rank == 0:\n    poll()  # HERE\nafter()\n") == {0}
    assert reached_by("while rank == 0:\n    poll()\nafter()  # HERE\n") == EVERYBODY


@pytest.mark.parametrize(
    ("bound", "test", "ranks"),
    [
        ("me = dist.get_rank()", "me == 0", {0}),
        ("me, n = dist.get_rank(), dist.get_world_size()", "me == 0", {0}),
        ("me = dist.get_rank() if dist.is_initialized() else 0", "me == 0", {0}),
        ("me: int = int(os.environ['RANK'])", "me == 0", {0}),
        ("rank = int(os.environ['LOCAL_RANK'])", "rank == 0", {0, 2}),
        ("self.chosen = self.rank == 1", "self.chosen", {1}),
        ("self.chosen = self.rank == 1", "not self.chosen", {0, 2, 3}),
        ("me = dist.get_rank() == 0 if dist.is_initialized() else True", "me", {0}),
        ("me = hvd.rank()", "me == 0", {0}),
        ("logs = rank == 0 and verbose", "logs", {0}),
        ("ddp = int(os.environ.get('RANK', -1)) != -1", "ddp", EVERYBODY),
        ("is_main = args.mode == 'main'", "is_main", EVERYBODY),
        ("rank = dist.get_rank(group)", "rank == 0", EVERYBODY),
        ("rank = matrix_rank(x)", "rank == 0", EVERYBODY),
        ("rank = mpu.get_tensor_model_parallel_rank()", "rank == 0", EVERYBODY),
        ("for rank in range(world_size): f()", "rank == 0", EVERYBODY),
        ("me = dist.get_rank()\nme = 3", "me == 0", EVERYBODY),
        ("me = other\nother = me", "me == 0", EVERYBODY),
        ("rank = self.rank\nself.rank = rank", "rank == 0", {0}),
        ("rank, size = setup()", "rank == 0", {0}),
        ("def f(rank): pass", "rank == 0", {0}),
    ],
)
def test_names_mean_what_they_are_bound_to(bound: str, test: str, ranks: set[int]) -> None:
    assert reached_by(f"{bound}\nif {test}:\n    a()  # HERE\n") == ranks


def test_lines_are_counted_as_python_counts_them() -> None:
    file = parse(b"\xef\xbb\xbfimport os\x0c\r\nx = '\xe2\x80\xa8\x1c'\rif rank == 0:\n\tsave()\n").records[0]
    assert file.line(4) == "save()"
    assert file.line(5) == ""
    assert file.line(6) is None
    assert [(made.first_line, made.line) for made in file.branches] == [(4, 3)]


def test_a_file_that_python_cannot_parse_keeps_its_lines() -> None:
    parsed = parse(b"print 'python 2'\nif rank == 0:\n    save()\n")
    assert parsed.records[0].line(3) == "save()"
    assert parsed.records[0].branches == ()
    assert parsed.problems[0].startswith("Python cannot parse it: ")


@pytest.mark.parametrize(
    "source", ["(" * 5_000, "if x:\n" + " pass\nelif y:\n" * 5_000 + " pass", "x = " + "-" * 3_000 + "1"]
)
def test_hostile_nesting_is_a_problem_and_no_more(source: str) -> None:
    assert len(parse(source.encode()).records) == 1


def test_warnings_about_the_users_code_are_not_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("x = '\\d'\ny = 1 is 1\n").branches == ()


def test_quoted_text_is_fit_to_show() -> None:
    file = read("x = 1  # \x1b[2J\n" + "y" * 2_000 + "\nif rank == 0 and x == '\x1b[2J':\n    pass\n")
    assert file.lines[0] == "x = 1  # \ufffd[2J"
    assert len(file.lines[1]) == 500
    assert "\x1b" not in file.branches[0].text


@pytest.mark.parametrize(("data", "message"), [(b"\0elf", "binary data"), (b"#" * (MAX_BYTES + 1), "larger than any")])
def test_what_is_no_source_code(data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(data)
