"""Programs: what C runs for the problems of a group, and the data that goes with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ckh.export.integers import Branch
from ckh.export.pools import make_pool
from ckh.export.sources import Functions, check_function, decide_function, features_function, flops_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckh.export.groups import Group, ProblemKind
    from ckh.export.integers import Expression, Text, Tree
    from ckh.export.pools import GroupPool
    from ckh.learn.artifact import Model
    from ckh.ranking.packed import PackedForest

APPLIES, REFUSED = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Which candidates of a group apply, as data.

    Attributes:
        conditions: what is asked of a problem's sizes.
        steps: condition, where to go if it holds and if not; an earlier step, `APPLIES`, or `REFUSED` or below.
        begins: where each candidate begins.
        reasons: why candidates do not apply: reason `i` is the end `REFUSED - i`.
    """

    conditions: tuple[Expression, ...]
    steps: tuple[tuple[int, int, int], ...]
    begins: tuple[int, ...]
    reasons: tuple[Text, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What ranks the candidates of a group.

    Attributes:
        program: the number of its program.
        rules: which of its candidates apply.
        made: its pool.
    """

    program: int
    rules: Rules
    made: GroupPool


@dataclass(frozen=True, slots=True, eq=False)
class GroupProgram:
    """A group that is exported; without candidates it has no body."""

    group: Group
    body: Body | None


@dataclass(slots=True, eq=False)
class Programs:
    """The programs of all models of an export."""

    _functions: Functions = field(default_factory=Functions)
    _entries: list[str] = field(default_factory=list)

    def add(self, model: Model, forests: Sequence[PackedForest], kind: ProblemKind, group: Group) -> GroupProgram:
        """Make the program of a group.

        Raises:
            ModelError: a feature or rule cannot be exported.
        """
        if not group.candidates:
            return GroupProgram(group, None)
        made, rules = parts_of(model, forests, kind, group)
        shapes = self._functions.number_of("shapes", _shapes(made))
        counts = (len(kind.sizes), made.constants, made.rows, len(made.graph.leaves), len(made.classes))
        parts = (
            *(str(count) for count in (*counts, len(rules.conditions))),
            *(f"{name}_{shapes}" for name in ("leaf_classes", "leaf_by_tile", "classes")),
            check_function(self._functions, kind.check(group.example)),
            decide_function(self._functions, rules.conditions),
            flops_function(self._functions, kind.flops(group.example)),
            features_function(self._functions, made),
        )
        entry = f"{{{', '.join(parts)}, 0}}"
        if entry not in self._entries:
            self._entries.append(entry)
        return GroupProgram(group, Body(self._entries.index(entry), rules, made))

    def text(self) -> str:
        """All functions, and the table of programs."""
        entries = ",\n".join(f"  {entry}" for entry in self._entries)
        table = f"const ckh_program ckh_programs[] = {{\n{entries}\n}};"
        return "\n".join(
            [*self._functions.texts, table, f"const int32_t ckh_program_count = {len(self._entries)};", ""]
        )

    def key(self) -> int:
        """A number that tells these programs from others."""
        return int.from_bytes(hashlib.sha256(self.text().encode()).digest()[:8], "little")


def parts_of(model: Model, forests: Sequence[PackedForest], kind: ProblemKind, group: Group) -> tuple[GroupPool, Rules]:
    """The pool and the rules of a group that has candidates.

    Raises:
        ModelError: a feature or rule cannot be exported.
    """
    made = make_pool(model, forests, [one.kernel for one in group.candidates], group.example)
    return made, make_rules([kind.rule(group.example, one.reason) for one in group.candidates])


def make_rules(trees: Sequence[Tree]) -> Rules:
    """Decisions of candidates as data, each distinct one once."""
    conditions: dict[Expression, int] = {}
    steps: dict[tuple[int, int, int], int] = {}
    reasons: dict[Text, int] = {}
    known: dict[Tree, int] = {}

    def begin(tree: Tree) -> int:
        if not isinstance(tree, Branch):
            return APPLIES if tree is True else REFUSED - reasons.setdefault(tree or (), len(reasons))
        if tree not in known:
            after = begin(tree.yes), begin(tree.no)
            step = (conditions.setdefault(tree.condition, len(conditions)), *after)
            known[tree] = steps.setdefault(step, len(steps))
        return known[tree]

    begins = tuple(map(begin, trees))
    return Rules(tuple(conditions), tuple(steps), begins, tuple(reasons))


def _shapes(made: GroupPool) -> str:
    leaves = [leaf.values.shape for leaf in made.graph.leaves]
    by_tile = [made.pool.tiles > 1 and tiles > 1 for _, tiles in leaves]
    arrays = (
        ("int32_t leaf_classes_@", [classes for classes, _ in leaves]),
        ("uint8_t leaf_by_tile_@", list(map(int, by_tile))),
        ("int32_t classes_@", list(made.classes)),
    )
    # C has no arrays of no elements.
    return "".join(f"static const {name}[] = {{{', '.join(map(str, values or [0]))}}};\n" for name, values in arrays)
