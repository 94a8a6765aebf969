"""Which ranks can pass a test such as `rank == 0 and not args.debug`.

In: expressions of a syntax tree. Out: a `RankSet` that holds all ranks for which the test can come out as asked, or
None where any rank may, as far as the text tells. Only constants count: `rank % 8 == 0` and `rank != world_size - 1`
depend on more than the text.

Names are those of torch and its frameworks, and what people call their variables. Ranks inside a group or a mesh, and
numbers of nodes, are none of them: `dist.get_rank(group)`, `mesh.get_local_rank()`, `node_rank`, `tp_rank`.
"""

import ast
import re
from functools import reduce

from ncclprobe.model.source import RankSet
from ncclprobe.parse.bindings import Bindings
from ncclprobe.parse.rank_sets import NOBODY, both, either, only, others

_RANK = re.compile(
    r"(global_|world_|ddp_|dist_|my_)?rank(_id)?|(get_)?(global_)?rank\(\)|Get_rank\(\)|process_index(\(\))?"
)
_LOCAL_RANK = re.compile(r"(ddp_)?local_rank|(get_)?local_rank\(\)|local_process_index")
_FIRST = re.compile(
    r"((is_)?(main|master|primary|chief|first|zero)_(process|rank)|is_(main|master|primary|chief)"
    r"|(is_)?(global_|rank_?)(zero|0)|is_world_process_zero)(\(\))?"
)
_LOCAL_FIRST = re.compile(r"is_local_(main_process|master|process_zero|zero|rank_?0|rank_zero)(\(\))?")
_DISTRIBUTED = re.compile(
    r"(\w+\.)*(is_initialized|is_distributed|is_torchelastic_launched|\w*dist\w*\.is_available)\(\)"
)
_WORLD_SIZE = re.compile(r"(get_)?world_size(\(\))?|num_processes")
_LOOK_UP = re.compile(r"(?i)int|get|getenv|get_world_size|process_index|is_\w+|\w*rank\w*")
_WORLD_MODULE = re.compile(r"|hvd|horovod(\.torch)?|bagua|bps|dist")
# Words before a name that make it a rank inside something.
_INSIDE = re.compile(r"(?i)(^|[^a-z])(\w*group|\w*mesh|mpu|parallel_state|pg|tp|pp|dp|cp|ep)([^a-z]|$)")
_VARIABLES = dict.fromkeys(("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), False)
_LOCAL_VARIABLES = dict.fromkeys(("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), True)
_IS_LOCAL = _VARIABLES | _LOCAL_VARIABLES
_MAX_CONSTANT = 4_096
_MEMBERSHIP, _COLLECTIONS = (ast.In, ast.NotIn), (ast.Tuple, ast.List, ast.Set)
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}


class RankTests:
    """The tests of one file, with what its names are bound to."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._pending: set[str] = set()  # names being looked up, against definitions that go in circles

    def passing(self, test: ast.expr, *, holds: bool = True) -> RankSet | None:
        """Who can find `test` true, or false where not `holds`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.passing(test.operand, holds=not holds)
        if isinstance(test, ast.BoolOp):
            parts = [self.passing(part, holds=holds) for part in test.values]
            return reduce(both if isinstance(test.op, ast.And) == holds else either, parts)
        if isinstance(test, ast.Compare):
            sides = [test.left, *test.comparators]
            pairs = [self._pair(*pair, holds=holds) for pair in zip(sides, test.ops, sides[1:], strict=False)]
            return reduce(both if holds else either, pairs)
        if isinstance(test, ast.IfExp):
            then = both(self.passing(test.test), self.passing(test.body, holds=holds))
            return either(then, both(self.passing(test.test, holds=False), self.passing(test.orelse, holds=holds)))
        if isinstance(test, ast.Constant):
            return None if bool(test.value) == holds else NOBODY
        return self._of_name(test, holds=holds)

    def equal_to(self, subject: ast.expr, value: ast.expr) -> RankSet | None:
        """Who finds `subject == value`."""
        return self._pair(subject, ast.Eq(), value, holds=True)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr, *, holds: bool) -> RankSet | None:
        if _constants(left) is not None and not isinstance(op, _MEMBERSHIP):
            left, op, right = right, _MIRRORED.get(type(op), type(op))(), left
        numbers = _constants(right)
        if numbers is None or isinstance(op, _MEMBERSHIP) != isinstance(right, _COLLECTIONS):
            return None
        if _WORLD_SIZE.fullmatch(_last_name(left)):
            return NOBODY if _is_never(op, numbers, holds=holds) else None
        is_local = self._is_local(left)
        if is_local is None:
            return None
        passing = _of_comparison(op, numbers, is_local=is_local)
        return passing if holds else others(passing)

    def _of_name(self, test: ast.expr, *, holds: bool) -> RankSet | None:
        name = _last_name(test)
        if isinstance(test, ast.Call) and _DISTRIBUTED.fullmatch(ast.unparse(test)):
            return None if holds else NOBODY
        definition = self._only_definition(name)
        if definition is not None:
            self._pending.add(name)
            passing = self.passing(definition, holds=holds)
            self._pending.discard(name)
            if passing is not None or isinstance(definition, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
                return passing
        if _FIRST.fullmatch(name) or _LOCAL_FIRST.fullmatch(name):
            first = only([0], is_local=bool(_LOCAL_FIRST.fullmatch(name)))
            return first if holds else others(first)
        is_local = self._is_local(test)  # `if rank:` and `if not rank:`
        if is_local is None:
            return None
        first = only([0], is_local=is_local)
        return others(first) if holds else first

    def _only_definition(self, name: str) -> ast.expr | None:
        bound = self._bindings.get(name, ()) if name not in self._pending else ()
        return bound[0] if len(bound) == 1 and isinstance(bound[0], ast.expr) else None

    def _is_local(self, node: ast.AST) -> bool | None:
        """Whether a value is a rank inside its host; None when it is no rank, or a rank of something else."""
        if isinstance(node, ast.NamedExpr):
            return self._is_local(node.value)
        if isinstance(node, ast.IfExp):
            return self._is_local(node.body)
        variable = _variable(node)
        if variable is not None:
            return _IS_LOCAL.get(variable)
        if isinstance(node, ast.Call) and _last_name(node.func) == "int" and len(node.args) == 1:
            return self._is_local(node.args[0])
        name = _last_name(node)
        definition = self._only_definition(name)
        is_local = self._looked_up(name, definition) if definition is not None else None
        if is_local is not None or not _is_rank_name(name):
            return is_local
        receiver = _receiver(node)
        is_method = name in ("rank()", "local_rank()") and not _WORLD_MODULE.fullmatch(receiver)
        is_another = is_method or bool(_INSIDE.search(receiver)) or self._is_other(name)
        return None if is_another else bool(_LOCAL_RANK.fullmatch(name))

    def _looked_up(self, name: str, definition: ast.AST) -> bool | None:
        self._pending.add(name)
        is_local = self._is_local(definition)
        self._pending.discard(name)
        return is_local

    def _is_other(self, name: str) -> bool:
        """Whether the file uses the name for something else: a loop over all ranks, a rank in a group, a matrix's."""
        if name in self._pending:
            return False
        for node in self._bindings.get(name, ()):
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                return True
            if "rank" in _last_name(node) and self._looked_up(name, node) is None:
                return True
        return False


def asks_more(test: ast.expr) -> bool:
    """Whether a test calls anything that does not merely look up a rank or a size."""
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    return not all(_LOOK_UP.fullmatch(_last_name(call.func)) for call in calls)


def _is_rank_name(name: str) -> bool:
    return bool(_RANK.fullmatch(name) or _LOCAL_RANK.fullmatch(name))


def _of_comparison(op: ast.cmpop, numbers: tuple[int, ...], *, is_local: bool) -> RankSet | None:
    number = numbers[0] if len(numbers) == 1 else None
    if isinstance(op, (ast.Eq, ast.In)):
        return only(numbers, is_local=is_local)
    if isinstance(op, (ast.NotEq, ast.NotIn)):
        return others(only(numbers, is_local=is_local))
    if number is None:
        return None
    if isinstance(op, (ast.Lt, ast.LtE)):
        return only(range(number + isinstance(op, ast.LtE)), is_local=is_local)
    if isinstance(op, (ast.Gt, ast.GtE)):
        return others(only(range(number + isinstance(op, ast.Gt)), is_local=is_local))
    return None


def _is_never(op: ast.cmpop, numbers: tuple[int, ...], *, holds: bool) -> bool:
    """Whether no job of two ranks or more has a world size that compares so: `world_size == 1`, `world_size < 2`."""
    if numbers not in ((1,), (2,)):
        return False
    is_small = isinstance(op, ast.Lt) or (isinstance(op, (ast.Eq, ast.LtE)) and numbers == (1,))
    is_large = isinstance(op, ast.GtE) or (isinstance(op, (ast.NotEq, ast.Gt)) and numbers == (1,))
    return is_small if holds else is_large


def _constants(node: ast.expr) -> tuple[int, ...] | None:
    """The number, or the numbers of a literal collection; None when it is anything else. Variables come as text."""
    if isinstance(node, _COLLECTIONS):
        parts = [_constants(part) for part in node.elts]
        return None if None in parts else tuple(number for part in parts if part for number in part)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constants(node.operand)
        return None if inner is None else tuple(-number for number in inner)
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value):
        value = int(value)
    return (value,) if type(value) is int and abs(value) <= _MAX_CONSTANT else None


def _variable(node: ast.AST) -> str | None:
    """`os.environ["RANK"]`, `os.environ.get("RANK", 0)`, `os.getenv("RANK")` -> "RANK"."""
    key: ast.AST | None = None
    if isinstance(node, ast.Subscript) and _last_name(node.value) in ("environ", "env"):
        key = node.slice
    elif isinstance(node, ast.Call) and node.args and _last_name(node.func) in ("get", "getenv"):
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _last_name(node: ast.AST) -> str:
    """`dist.get_rank()` -> "get_rank()", `self.args.local_rank` -> "local_rank", anything else -> ""."""
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        return f"{name}(...)" if node.args or node.keywords else f"{name}()"
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _receiver(node: ast.AST) -> str:
    """`self.dp_group.rank()` -> "self.dp_group"."""
    target = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""
