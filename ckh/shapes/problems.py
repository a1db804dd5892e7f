"""Convert the layers of sources to problems of operations, with counts."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.ops import as_problem, operation, operation_of_problem, requested
from ckh.shapes.layers import (
    ATTENTION,
    DEFAULT,
    RECURRENCE,
    UNQUANTISED,
    Convolution,
    Scaling,
    WeightedProblem,
    require_sizes,
)
from ckh.shapes.logs import UNSUPPORTED
from ckh.shapes.quantisation import QUANTISATION_HINT
from ckh.shapes.shaped import all_parts, shaped_part
from ckh.shapes.sources import STDIN, Source, SourceKind, SourceLayers, found_in, has_tokens, reader_of, source_of
from ckh.text.log import note_once, warn_left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ckh.ops.base import Operation, Problem
    from ckh.shapes.layers import Layer, RunOptions
    from ckh.shapes.shaped import Shaped

P = TypeVar("P", bound="Problem")
_LeftOut = dict[tuple[str, str], "list[Layer]"]  # by the reason, and the code of an error
MAX_LAYERS = 12  # maximum layer names kept for a problem
FORWARD = "forward"
# Fields of shapes that not all operations have -> what is said where one has not.
_LOSSES = {"has_bias": "a bias is left out", "is_shuffled": "shuffled B is taken as plain"}
_OWN_READERS = (SourceKind.PROBLEMS, SourceKind.UNTUNED)  # operations read these files themselves


@dataclass(frozen=True, slots=True)
class ShapesFound:
    """Problems of sources, and the account of what was read."""

    problems: list[WeightedProblem]
    account: Account  # of the sources' entries; in `left_out` calls of layers
    left_out: dict[str, int]
    left_work: Mapping[str, int] = field(default_factory=dict)  # the same with shares of the work, and what takes it
    changes: tuple[str, ...] = ()  # element types, layouts and scales that a source does not have
    weights: Mapping[int, int] = field(default_factory=dict)  # how often each number of tokens runs, if there are any

    def report(self, name: str = "") -> None:
        """Print the weights of tokens, and what differs from the sources, of this name."""
        at = f"{name}: " if name else ""
        for note in (*([weights_in_words(self.weights)] if len(self.weights) > 1 else []), *self.changes):
            note_once(at + note)
        for reason, count in {**self.account.named(self.account.bad), **self.left_work}.items():
            warn_left_out(name, reason, count)

    @property
    def left_words(self) -> tuple[str, ...]:
        """Entries that are left out, as sentences."""
        return tuple(f"{count}: {reason}" for reason, count in self.left_work.items())


def shapes_of(names: Sequence[str], wanted: RunOptions = DEFAULT, op: str | None = None) -> ShapesFound:
    """Problems of sources."""
    own = None if op is None else operation(op).name
    return weighted(found_in_all(names, wanted, own), wanted, own)


def found_in_all(names: Sequence[str], wanted: RunOptions, op: str | None) -> list[SourceLayers]:
    """The layers of each source; unusable ones of several sources are left out, unless with --strict."""
    skips = not wanted.strict and len(names) > 1
    return [_found_in(name, wanted, op or "", skips=skips) for name in names]


def _found_in(name: str, wanted: RunOptions, op: str, *, skips: bool) -> SourceLayers:
    try:
        return found_in(source_of(name), wanted, op)
    except DataError as error:
        if not skips:
            raise
        account = Account()
        account.refuse(error, name)
        return SourceLayers(Source(SourceKind.LOG, name), [], account)


def weighted(sources: Sequence[SourceLayers], wanted: RunOptions, op: str | None) -> ShapesFound:
    """Problems of the layers of sources; equal problems are merged."""
    account = Account(wanted.strict)
    for source_layers in sources:
        account.add(source_layers.account)
    counts: dict[tuple[str, Any], list[Layer]] = {}
    left: _LeftOut = {}
    changes: dict[str, list[Layer]] = {}
    for source_layers in sources:
        for layer in source_layers.layers:
            try:
                problem = _problem(layer, wanted, op, changes, is_model=source_layers.source.is_model)
            except CkhError as error:
                if error.code in (UNSUPPORTED, UNQUANTISED):
                    left.setdefault((error.message, error.code), []).append(layer)
                else:
                    account.refuse(error, layer.where)
                continue
            if isinstance(problem, str):
                left.setdefault((problem, ""), []).append(layer)
            else:
                counts.setdefault(problem, []).append(layer)
    problems = [_merged(name, problem, layers) for (name, problem), layers in counts.items()]
    unlisted = {reason: left.pop((reason, ""), []) for reason in (ATTENTION, RECURRENCE)}
    work = [sum(map(_flops, layers)) for layers in left.values()]
    total = max(sum(work) + sum(problem.flops for problem in problems), 1)
    words = {
        _left_words(key[0], layers, own / total): sum(layer.count for layer in layers)
        for (key, layers), own in zip(left.items(), work, strict=True)
    } | account.known
    if not problems:
        raise _nothing(sources, op, words, left, account)
    left |= {(reason, ""): layers for reason, layers in unlisted.items()}
    left_out = account.known + Counter({key[0]: sum(layer.count for layer in layers) for key, layers in left.items()})
    changed = [
        f"{text} ({sum(layer.count for layer in layers)} {_calls(layers, sum(map(_flops, layers)) / total)})"
        for text, layers in changes.items()
    ]
    for reason, layers in unlisted.items():
        own, ops = sum(map(_flops, layers)), [_operation_of(layer.shape) for layer in layers[:1] if reason == ATTENTION]
        hint = "".join(f"; --op {name} lists them" for name in ops)
        changed += [f"{own / (own + total):.1%} of the FLOPs are {reason}{hint}"] if layers else []
    weights = wanted.weights if wanted.times or any(has_tokens(each.source) for each in sources) else {}
    if wanted.times:
        problems.sort(key=lambda shape: -shape.flops)
    return ShapesFound(problems, account, dict(left_out), words, tuple(changed), weights)


def weights_in_words(weights: Mapping[Any, int]) -> str:
    """How often each number of tokens runs, in words."""
    if set(weights.values()) == {1}:
        return f"tokens {', '.join(map(str, weights))}: once each (ckh shapes --workload mixed weights them)"
    return f"weights of the tokens: {', '.join(f'{number}:{times}' for number, times in weights.items())}"


def _nothing(
    sources: Sequence[SourceLayers], op: str | None, words: Mapping[str, int], left: _LeftOut, account: Account
) -> DataError:
    """Error for sources without a problem of an operation."""
    if account.error is not None and len(account.left_out) == 1 and not left:
        return account.error
    names = ", ".join(source_layers.source.name for source_layers in sources)
    # The reason with the most work, of those that no other operation takes.
    main = max(left, key=lambda key: (key[0] not in all_parts(), sum(map(_flops, left[key]))), default=("", ""))
    if main[1] == UNQUANTISED:
        what = "model" if all(source_layers.source.is_model for source_layers in sources) else "list"
        dtype = " and ".join(dict.fromkeys(layer.shape.dtype for layer in left[main]))
        rest = "; ".join(f"{words[line]} {line}" for line, key in zip(words, left, strict=False) if key != main)
        text = f"{names}: this {what} is {dtype}: --dtype fp8 if it is served quantised"
        return DataError(text, f"besides, {rest}" if rest else "", code=UNQUANTISED)
    found = [f"only {'; '.join(f'{count} {line}' for line, count in words.items())}"] if words else []
    found += [f"{account.bad.total()} bad, the first: {next(iter(account.named(account.bad)))}"] if account.bad else []
    hint = QUANTISATION_HINT if any(layer.unread for layers in left.values() for layer in layers) else ""
    text = "; ".join([f"no shape{f' of {op}' if op else ''} in {names}", *found])
    return DataError(text, hint if found else "see ckh shapes --help for what is read", code="no-problems")


def _flops(layer: Layer) -> int:
    """Floating-point operations of a layer that is left out; 0: unknown."""
    if layer.op:
        return int(layer.count * layer.shape.flops)
    plain = {"dtype": "bf16", "scaling": Scaling.NONE} if hasattr(layer.shape, "scaling") else {}
    shape = replace(layer.shape, **plain)
    return int(layer.count * _required_part(_operation_of(shape)).problem(shape, "bf16").flops)


def _left_words(reason: str, layers: Sequence[Layer], share: float) -> str:
    """Describe layers left out for one reason: calls, share of the work, and the operation that takes them."""
    calls = _calls(layers, share)
    if reason in all_parts():
        return f"{calls}: --op {reason} takes them"
    own = layers[0].op or _operation_of(layers[0].shape)
    return f"{calls}: {reason}" + ("" if layers[0].unread or own in reason else f"; --op {own} takes them")


def _calls(layers: Sequence[Layer], share: float) -> str:
    """Names of calls, and their share of the work."""
    names = ", ".join(dict.fromkeys(layer.name for layer in layers if layer.name))
    return "calls" + (names and f" of {names:.80}") + f", {share:.1%} of the work"


def _merged(op: str, problem: Any, layers: Sequence[Layer]) -> WeightedProblem:
    names = tuple(dict.fromkeys(name for layer in layers for name in layer.name.split()))[:MAX_LAYERS]
    stated = tuple(dict.fromkeys(layer.stated for layer in layers if layer.stated))
    count = sum(layer.count for layer in layers)
    require_sizes([("the number of executions", count)])
    time = min((layer.time for layer in layers if layer.time is not None), default=None)
    return WeightedProblem(op, problem, count, names, layers[0].where, stated, time)


def _problem(
    layer: Layer, wanted: RunOptions, op: str | None, changes: dict[str, list[Layer]], *, is_model: bool
) -> tuple[str, Any] | str:
    """Operation and problem of a layer, or the reason why it is left out; counts what the conversion changes."""
    if layer.unread and not (op and layer.unread == ATTENTION and isinstance(layer.shape, _required_part(op).kind)):
        return layer.unread
    name = layer.op
    problem, changed = layer.shape, tuple[str, ...]()
    if not name or (op and op != name):
        shape = problem if not name else _required_part(name).shape(problem)
        name = op or _operation_of(shape)
        part = _required_part(name)
        if not isinstance(shape, part.kind):
            return _operation_of(shape)
        if isinstance(shape, Convolution) and not shape.variant:
            shape = replace(shape, variant=wanted.variant or FORWARD)
        problem = part.problem(shape, wanted.dtype or wanted.default_dtype)
        changed = tuple(_changes(shape, name, problem, part))
    if wanted.dtype is not None and problem.dtype != wanted.dtype and not (is_model and op is None):
        return f"{name} in {problem.dtype}"
    if wanted.variant is not None and getattr(problem, "variant", wanted.variant) != wanted.variant:
        return f"{name}, {problem.variant}"
    for text in changed:
        changes.setdefault(text, []).append(layer)
    return name, problem


def _changes(shape: Any, op: str, problem: Any, part: Shaped[Any]) -> Iterator[str]:
    """Describe how a problem differs from the shape in the source: element type, layout, scales."""
    back = part.shape(problem)
    if not shape.dtype:
        yield f"no element type is stated: {problem.dtype} is assumed"
    if (scaling := getattr(shape, "scaling", "")) != getattr(back, "scaling", ""):
        yield f"{shape.dtype} with scales ({scaling}) is taken as {problem.dtype} without scales, as {op} has none"
    for name, loss in _LOSSES.items():
        if getattr(shape, name, False) and not getattr(back, name, False):
            own = _operation_of(shape)
            yield f"{loss}, as {op} has none" + (f": --op {own} takes it" if own != op else "")
    if (result := getattr(shape, "result", "")) not in ("", back.dtype):
        yield f"a result in {result} is taken as {back.dtype}, as no kernels of {op} store it"
    layout = getattr(problem, "layout", "") or getattr(back, "layout", "")
    if getattr(shape, "layout", "") not in ("", layout, layout.replace("g", "")):
        yield f"layout {shape.layout} is taken as {layout}"


def _required_part(name: str) -> Shaped[Any]:
    """The shapes interface of an operation."""
    if (part := shaped_part(name)) is None:
        raise UsageError(
            f"{name} has no problems from shapes", "these do: " + ", ".join(all_parts()), code="inapplicable-option"
        )
    return part


def problem_of_shape(shape: Any, op: str = "") -> tuple[str, Any]:
    """Operation and problem of a shape whose source states its element type; with `op` it is a problem already."""
    name = op or _operation_of(shape)
    return name, shape if op else _required_part(name).problem(shape, "")


def _operation_of(shape: Any) -> str:
    """Default operation of a shape."""
    parts = {name: part for name, part in all_parts().items() if isinstance(shape, part.kind)}
    return next((name for name, part in parts.items() if part.prefers(shape)), next(iter(parts)))


def reads(source: str, op: Operation[Any, Any]) -> bool:
    """True if a command's --problems is read as shapes: neither a problem set nor a problem file of the operation."""
    if source in op.problems.set_names() or op.name not in all_parts():
        return False
    if source == STDIN:
        return True
    try:
        detected = source_of(source)
    except CkhError:
        return False
    is_file_of_texts = detected.kind is SourceKind.TEXTS and detected.path != Path()
    return not is_file_of_texts and detected.kind not in _OWN_READERS


def counts_of(op: Operation[P, Any], source: str, problems: Iterable[P]) -> dict[P, int] | None:
    """Number of executions of each problem returned by `problems_of` for a source; None if it states no counts."""
    if not reads(source, op):
        return None
    wanted = set(problems)
    with suppress(DataError):  # without a shape unless its types are replaced
        counts = _counts(source, DEFAULT, op)
        if wanted <= counts.keys():
            return counts
    kinds = {(problem.dtype, getattr(problem, "variant", None)) for problem in wanted}
    parts = [_counts(source, replace(DEFAULT, dtype=dtype, variant=variant), op) for dtype, variant in kinds]
    return {problem: count for part in parts for problem, count in part.items()}


def _counts(source: str, wanted: RunOptions, op: Operation[P, Any]) -> dict[P, int]:
    return {shape.problem: shape.count for shape in shapes_of([source], wanted, op.name).problems}


def problems_of(
    op: Operation[P, Any], source: str, variant: str | None, dtype: str | None, default_dtype: str = "fp32"
) -> tuple[P, ...]:
    """Distinct problems of a set, a file or any source of shapes, as `LoadProblems`."""
    if not reads(source, op):
        return op.problems.load(source, variant, dtype, default_dtype)
    if variant is not None and not op.has_directions:
        raise UsageError(f"{op.name} has no directions", "omit --variant", code="inapplicable-option")
    wanted = replace(DEFAULT, dtype=dtype, variant=variant, default_dtype=default_dtype)
    shapes = shapes_of([source], wanted, op.name)
    shapes.report(source)
    return tuple(problem.problem for problem in shapes.problems)


def problem_of_text(text: str, arch: str) -> Problem:
    """The problem that a text names: as `ckh predict` prints it, or a source of shapes that has a single one."""
    try:
        problem = as_problem(text)
    except UsageError as error:
        if error.code != "unknown-op":
            raise
        problems = shapes_of([text]).problems
        if len(problems) > 1:
            texts = ", ".join(shape.problem.canonical() for shape in problems[:2])
            raise UsageError(
                f"{text} has {len(problems)} problems: {texts}, …", "name one of them by its text", code="bad-problem"
            ) from error
        problem = problems[0].problem
    part = requested(operation_of_problem(problem).name)
    completed: Problem = problem if part is None else part.completed(problem, arch)
    return completed


def stated_operation(source: str | None) -> str | None:
    """Operation with the most work in a source, for a command without --op; None: the source states none."""
    if source is None:
        return None
    try:
        detected = source_of(source)
        if detected.kind in _OWN_READERS:
            return detected.op or reader_of(detected.path)
        work: Counter[str] = Counter()
        for problem in shapes_of([source], DEFAULT).problems:
            work[problem.op] += problem.flops
    except CkhError:
        return None
    return work.most_common(1)[0][0]
