"""Process groups of a job, made and numbered as torch does.

In: a world size and the degrees of parallelism. Out: a `Layout`: every group, and each rank's place in its groups.

Every process makes all groups in the same order, and torch counts them: that number is the group's name everywhere.
`pg_id` counts only the groups that the process itself is a member of, so it differs between ranks.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

_NOT_A_MEMBER = -1


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its counted name, its description, its global ranks."""

    name: str
    description: str
    ranks: Sequence[int]

    @property
    def label(self) -> str:
        """The description, or the name where a user gave none."""
        return self.description if self.description != "undefined" else self.name


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of parallelism: for each rank, by its number, its group, its place there and its own `pg_id`."""

    group: "array[int]"
    member: "array[int]"
    pg_id: "array[int]"


@dataclass(slots=True)
class Layout:
    """The groups of all ranks. An axis is a short key such as `tp`; of each a rank has at most one group."""

    world_size: int
    degrees: dict[str, int] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    axes: dict[str, Axis] = field(default_factory=dict)
    _next_id: "array[int]" = field(default_factory=lambda: array("i"))
    _texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._next_id = array("i", [0]) * self.world_size

    def add(self, axis: str, description: str, ranks: Sequence[int]) -> None:
        """The next group that all processes make; `ranks` join it."""
        known = self.axes.get(axis)
        if known is None:
            columns = (array("i", [_NOT_A_MEMBER]) * self.world_size for _ in range(3))
            known = self.axes[axis] = Axis(*columns)
        for member, rank in enumerate(ranks):
            known.group[rank] = len(self.groups)
            known.member[rank] = member
            known.pg_id[rank] = self._next_id[rank]
            self._next_id[rank] += 1
        self.groups.append(Group(str(len(self.groups)), description, ranks))

    def add_all(self, axis: str, description: str, groups: Iterable[Sequence[int]]) -> None:
        """One group after another."""
        for ranks in groups:
            self.add(axis, description, ranks)

    def group(self, axis: str, rank: int) -> Group:
        """The rank's group on an axis."""
        return self.groups[self.axes[axis].group[rank]]

    def ranks_text(self, group: Group) -> str:
        """Its members as dumps list them: `[0, 1, 2]`. Kept, for it stands in the dump of every member."""
        if group.name not in self._texts:
            self._texts[group.name] = f"[{', '.join(map(str, group.ranks))}]"
        return self._texts[group.name]

    def size(self, axis: str) -> int:
        """Members of the groups on an axis, which are all of one size; 1 where there is no such axis."""
        known = self.axes.get(axis)
        index = next((group for group in known.group if group >= 0), None) if known else None
        return len(self.groups[index].ranks) if index is not None else 1

    def is_member(self, axis: str, rank: int) -> bool:
        """Whether the rank has a group on an axis."""
        return axis in self.axes and self.axes[axis].group[rank] >= 0

    def axes_of(self, rank: int) -> Iterator[str]:
        """The axes on which a rank has a group, in the order the groups were made."""
        return (axis for axis, known in self.axes.items() if known.group[rank] >= 0)


def flat(world_size: int) -> Layout:
    """Plain DDP: the default group is all there is."""
    layout = Layout(world_size, {"dp": world_size})
    layout.add("world", "default_pg", range(world_size))
    return layout


def sharded(world_size: int, replicas: int) -> Layout:
    """FSDP over a device mesh, hybrid where there are `replicas`; the user made one more group, for metrics."""
    shards = world_size // replicas
    layout = Layout(world_size, {"dp_shard": shards, "dp_replicate": replicas})
    layout.add("world", "default_pg", range(world_size))
    if replicas > 1:
        layout.add_all("replicate", "mesh_dp_replicate", (range(s, world_size, shards) for s in range(shards)))
        layout.add_all("shard", "mesh_dp_shard", (range(r * shards, (r + 1) * shards) for r in range(replicas)))
    else:
        layout.add("shard", "mesh_dp", range(world_size))
    layout.add("metrics", "undefined", range(world_size))
    return layout


def megatron(world_size: int, tp: int, pp: int, ep: int) -> Layout:
    """Megatron's groups in the order its `initialize_model_parallel` makes them (core 0.13; tp, then dp, then pp)."""
    dp = world_size // (tp * pp)
    layout = Layout(world_size, {"tp": tp, "pp": pp, "dp": dp, "ep": ep})
    stage = tp * dp
    rows = [range(start, start + tp) for start in range(0, world_size, tp)]
    stages = [range(start, start + stage) for start in range(0, world_size, stage)]
    columns = [range(s * stage + t, (s + 1) * stage, tp) for s in range(pp) for t in range(tp)]
    layout.add("world", "default_pg", range(world_size))
    layout.add_all("dp", "DATA_PARALLEL_GROUP_WITH_CP", columns)
    layout.add_all("dp_only", "DATA_PARALLEL_GROUP", columns)
    layout.add_all("cp", "CONTEXT_PARALLEL_GROUP", ((rank,) for rank in range(world_size)))
    models = ([s * stage + d * tp + t for s in range(pp) for t in range(tp)] for d in range(dp))
    layout.add_all("mp", "MODEL_PARALLEL_GROUP", models)
    layout.add_all("tp", "TENSOR_MODEL_PARALLEL_GROUP", rows)
    for first in range(stage):
        _add_pipeline(layout, range(first, world_size, stage))
    layout.add_all("tp_dp", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", stages)
    layout.add_all("tp_dp_only", "TENSOR_AND_DATA_PARALLEL_GROUP", stages)
    layout.add_all("tp_cp", "TENSOR_AND_CONTEXT_PARALLEL_GROUP", rows)
    _add_experts(layout, ep, stages)
    layout.add("opt", "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", range(world_size))
    return layout


def _add_pipeline(layout: Layout, ranks: range) -> None:
    """Megatron makes the embedding groups of a pipeline right after it."""
    layout.add("pp", "PIPELINE_MODEL_PARALLEL_GROUP", ranks)
    layout.add("emb", "EMBEDDING_GROUP", (ranks[0], ranks[-1]) if len(ranks) > 1 else ranks)
    layout.add("pos_emb", "POSITION_EMBEDDING_GROUP", (ranks[0],))


def _add_experts(layout: Layout, ep: int, stages: list[range]) -> None:
    """Expert groups are runs of ranks inside a stage; experts are not split further (tensor degree 1)."""
    blocks = [stage[start : start + ep] for stage in stages for start in range(0, len(stage), ep)]
    layout.add_all("ep", "EXPERT_MODEL_PARALLEL_GROUP", blocks)
    layout.add_all("etp", "EXPERT_TENSOR_PARALLEL_GROUP", ((rank,) for rank in range(layout.world_size)))
    layout.add_all("etmp", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", blocks)
    layout.add("etmpp", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", range(layout.world_size))
    replicas = (stage[first::ep] for stage in stages for first in range(ep))
    layout.add_all("edp", "EXPERT_DATA_PARALLEL_GROUP", replicas)
