"""Model files: forests, and pools of candidates prepared for them, as read by csrc/ckh_fill.c.

Exports and quick answers store such files; the Python path builds them in memory. A `RankingPlan` gives, for each
family of tests of a forest, the source of its values and the position of its masks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking.layout import FileWriter, numbers, record
from ckh.ranking.packed import as_masks, holds
from ckh.ranking.pool import Kind, Pool
from ckh.ranking.program import APPLIES, Checks, trace_program, write_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array, FeatureEngine
    from ckh.ranking.packed import PackedForest
    from ckh.ranking.pool import Placed
    from ckh.ranking.program import Program

    Int32 = NDArray[np.int32]
    Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPool:
    """A pool, a plan for each forest, and its features as a program."""

    pool: Pool
    plans: tuple[RankingPlan, ...]
    program: Program


@dataclass(frozen=True, slots=True, eq=False)
class FileGroup:
    """Problems that differ only in their sizes."""

    key: tuple[int, int, int, int]
    kernels: Sequence[int]
    decision: Sequence[int]
    step: Int32 | Sequence[tuple[int, ...]]
    reasons: int
    prepared: PreparedPool | None
    checks: Checks


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Metadata of a file."""

    texts: Sequence[str]
    kind: int = 0
    direction: int = -1
    dtype: int = -1
    tflops: int = -1
    timed: int = 0
    limits: Sequence[float] = ()
    calibration: Sequence[float] = ()


def prepare_pool(
    engine: FeatureEngine,
    names: Sequence[str],
    hardware: Mapping[str, Array],
    kernels: Mapping[str, Array],
    example: Mapping[str, Array],
    forests: Sequence[PackedForest],
    sizes: Sequence[str] | None = None,
) -> PreparedPool:
    """Prepare a pool for forests."""
    columns = {name: np.atleast_1d(column) for name, column in example.items()}
    changing = [name for name, column in columns.items() if is_number(column)] if sizes is None else sizes
    fixed = {name: column[0] for name, column in columns.items() if name not in changing}
    pool = Pool(
        replace(engine, defaults={**engine.defaults, **fixed}),
        names,
        hardware,
        kernels,
        {name: column for name, column in columns.items() if name in changing},
        nodes_of(forests, len(names)),
    )
    program = trace_program(pool, pool.numbers if sizes is None else sizes)
    return PreparedPool(pool, tuple(make_plan(forest, pool) for forest in forests), program)


def is_number(column: Array) -> bool:
    """True if a problem's column holds numbers, which may change between problems of a pool."""
    return np.asarray(column).dtype.kind in "biuf"


def nodes_of(forests: Sequence[PackedForest], inputs: int) -> Any:
    """Number of nodes that test each input, shape (inputs,)."""
    nodes = np.zeros(inputs, np.int64)
    for forest in forests:
        np.add.at(nodes, forest.families[:, 0], forest.family_nodes())
    return nodes


def whole_group(prepared: PreparedPool) -> FileGroup:
    """Build a group whose candidates always apply; they share one name."""
    count = len(prepared.pool.tile_of)
    return FileGroup((0, 0, 0, 0), [0] * count, [APPLIES] * count, (), 0, prepared, Checks())


def model_file(
    facts: FileFacts, forests: Sequence[PackedForest], logs: Sequence[bool], groups: Sequence[FileGroup]
) -> bytes:
    """Encode the content of a file."""
    writer = FileWriter()
    text = np.frombuffer("".join(f"{text}\0" for text in facts.texts).encode(errors="surrogateescape"), np.uint8)
    programs: dict[bytes, int] = {}
    numbers = [programs.setdefault(_program(group), len(programs)) if group.prepared else -1 for group in groups]
    counts = {"programs": len(programs), "forests": len(forests), "groups": len(groups)}
    given = {name: getattr(facts, name) for name in ("kind", "direction", "dtype", "tflops", "timed")}
    writer.section(
        "HEAD",
        text=text,
        name=np.append(0, np.flatnonzero(text == 0)[:-1] + 1),
        facts=record("FACTS", **given, **counts),
        limit=facts.limits,
        calibration=facts.calibration,
    )
    for program in programs:
        writer.append(program)
    for forest, is_log in zip(forests, logs, strict=True):
        _write_forest(writer, forest, is_log=is_log)
    for group, number in zip(groups, numbers, strict=True):
        _write_group(writer, group, number)
    return writer.content()


def _program(group: FileGroup) -> bytes:
    assert group.prepared is not None
    writer = FileWriter()
    write_program(writer, group.prepared.program, group.checks)
    return writer.body()


def _write_forest(writer: FileWriter, forest: PackedForest, *, is_log: bool) -> None:
    form = numbers("FORMS")["INPUT" if forest.is_input else "LOG" if is_log else "SUM"]
    writer.section(
        "FOREST",
        exponents=record("EXPONENTS", high=forest.high_exponent, low=forest.low_exponent, form=form),
        roots=forest.roots,
        nodes=forest.nodes,
        leaves=forest.leaves,
        family=forest.families,
        thresholds=forest.thresholds,
        sets=forest.sets,
        words=forest.words,
    )


def _write_group(writer: FileWriter, group: FileGroup, number: int) -> None:
    direction, dtype, layout, ndim = group.key
    key = {"direction": direction, "dtype": dtype, "layout": layout, "ndim": ndim}
    made = group.prepared
    sizes = {"program": number, "tiles": 0, "variants": 0, "blocks": 0, "reasons": group.reasons}
    if made is not None:
        sizes |= {"tiles": made.pool.tiles, "variants": made.pool.variants, "blocks": len(made.plans[0].blocks)}
    writer.section(
        "GROUP",
        group=record("GROUP", **key, **sizes),
        kernel=list(group.kernels),
        decision=list(group.decision),
        step=group.step,
    )
    if made is None:
        return
    first, leaves = made.plans[0], made.program.graph.leaves
    writer.section(
        "POOL",
        values=np.concatenate([np.zeros(0), *(leaf.ravel() for leaf in leaves)]),
        class_starts=first.class_starts,
        class_masks=first.class_masks,
    )
    for plan in made.plans:
        counts = record("MASK_COUNTS", fixed=plan.masks[0], all=plan.masks[1])
        writer.section("PLAN", counts=counts, family=plan.families, variant_masks=plan.variant_masks)
    for index, block in enumerate(first.blocks):
        tiles = record("RANGE", first=block.tiles.start, tiles=block.tiles.stop - block.tiles.start)
        writer.section(
            "BLOCK", range=tiles, candidate=block.candidates, tile_of=block.tile_of, variant_of=block.variant_of
        )
        for plan in made.plans:
            writer.section("MASKS", masks=plan.blocks[index].masks)


BLOCK = 4096  # tiles ranked together; csrc/ckh_fill.c refuses more


@dataclass(frozen=True, slots=True, eq=False)
class TileBlock:
    """Some of the tiles, and the candidates that have them."""

    tiles: slice
    candidates: NDArray[np.intp]
    tile_of: Int32
    variant_of: Int32
    masks: Words


@dataclass(frozen=True, slots=True, eq=False)
class RankingPlan:
    """How to rank a pool with a forest."""

    forest: PackedForest
    variants: int
    families: Int32
    masks: tuple[int, int]
    variant_masks: Words
    class_masks: Words
    class_starts: Int32
    blocks: tuple[TileBlock, ...]


def make_plan(forest: PackedForest, pool: Pool) -> RankingPlan:
    """Prepare a pool for a forest."""
    places = {place.feature: place for place in pool.placed}
    of_family = [places[feature] for feature in forest.families[:, 0].tolist()]
    families = np.full((len(of_family), 4), -1, np.int32)
    static = [np.zeros((0, pool.tiles), np.bool_)]
    of_variants = [np.zeros((0, pool.variants), np.bool_)]
    for family, place in enumerate(of_family):
        families[family] = place.kind, _source(place), -1, place.partition
        if place.kind == Kind.VARIANT:
            families[family, 2] = sum(map(len, of_variants))
            of_variants.append(holds(forest, family, pool.variant_rows[place.row]))
        elif place.kind != Kind.CONSTANT and not place.is_dynamic:
            families[family, 2] = sum(map(len, static))
            rows = pool.static_rows[place.row : place.row + place.rows]
            static += [holds(forest, family, row) for row in rows]
    holding = np.concatenate(static)
    count = len(holding)
    for family, place in enumerate(of_family):
        if place.is_dynamic and place.kind in {Kind.TILE, Kind.MIXED}:
            families[family, 2] = count
            count += int(forest.families[family, 3]) * place.rows
    classes = [row == np.arange(row.max() + 1)[:, None] for row in pool.partitions]
    return RankingPlan(
        forest=forest,
        variants=pool.variants,
        families=families,
        masks=(len(holding), count),
        variant_masks=as_masks(np.concatenate(of_variants)),
        class_masks=as_masks(np.concatenate([np.zeros((0, pool.variants), np.bool_), *classes])),
        class_starts=np.cumsum([0, *map(len, classes)], dtype=np.int32),
        blocks=tuple(_block(pool, holding, start) for start in range(0, pool.tiles, BLOCK)),
    )


def _source(place: Placed) -> int:
    return place.row if place.kind == Kind.CONSTANT or place.is_dynamic else -1


def _block(pool: Pool, holding: NDArray[np.bool_], start: int) -> TileBlock:
    stop = min(start + BLOCK, pool.tiles)
    candidates = np.flatnonzero((pool.tile_of >= start) & (pool.tile_of < stop))
    return TileBlock(
        tiles=slice(start, stop),
        candidates=candidates,
        tile_of=(pool.tile_of[candidates] - start).astype(np.int32),
        variant_of=pool.variant_of[candidates].astype(np.int32),
        masks=as_masks(holding[:, start:stop]),
    )
