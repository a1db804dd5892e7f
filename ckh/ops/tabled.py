"""Operations that are stated by a table: sizes of problems, a pattern of kernel names, and formulas of the work.

Times come from tables (`ckh convert --map`), and candidates are the kernels with times in a model's training data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, make_dataclass
from math import log2
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar

from ckh.errors import DataError, UsageError
from ckh.features.engine import Feature, FeatureEngine, fill, log2_of, pieces, raw
from ckh.kernels.declaration import either
from ckh.kernels.judging import RuleBook, Rules
from ckh.kernels.pools import TIMED_NAME, Pools
from ckh.kernels.table import KernelTable, column_of
from ckh.ops.base import Kernels, Operation, Problems, Training
from ckh.ops.gemm_universal.problem_sets.files import NamedSets
from ckh.ops.gemm_universal.readers.gemm_table import TableForm
from ckh.problems import DTYPE_BYTES, PasteableProblem, settle_size, unknown_dtype
from ckh.records import Record
from ckh.requested import Requested, SizeOption, as_option
from ckh.schema import Column, dataset_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_INTEGER = "0|[1-9][0-9]{0,8}"


class TabledProblem(PasteableProblem, Record):
    """A problem of an operation that is stated by a table; its fields are the sizes and `dtype`."""

    if TYPE_CHECKING:
        dtype: str
    op_type: ClassVar[str]
    size_columns: ClassVar[dict[str, str]]
    text_columns: ClassVar[tuple[str, ...]] = ("dtype",)
    required: ClassVar[tuple[str, ...]]
    work: ClassVar[tuple[Callable[[Any], float], Callable[[Any], float]]]

    def __post_init__(self) -> None:
        for name in self.size_columns:
            settle_size(self, name)
        if self.dtype not in DTYPE_BYTES:
            raise unknown_dtype(self.dtype)

    @property
    def flops(self) -> int:
        """Number of floating-point operations."""
        return int(self.work[0](self))

    @property
    def bytes(self) -> int:
        """Minimum number of bytes to move."""
        return int(self.work[1](self))

    def canonical(self) -> str:
        """Text that holds the complete identity."""
        return "_".join([self.op_type, self.dtype, *(f"{name}{getattr(self, name)}" for name in self.size_columns)])

    @classmethod
    def parsed(cls, text: str) -> Any:
        """Parse the text that `canonical` returns."""
        sizes = "".join(f"_{name}(?P<{name}>{_INTEGER})" for name in cls.size_columns)
        if (match := re.fullmatch(f"{cls.op_type}_(?P<dtype>[a-z0-9]+){sizes}", text.strip())) is None:
            raise UsageError(f"not a problem of {cls.op_type}: {text!r}", code="bad-problem")
        sizes_of: dict[str, Any] = {name: int(match[name]) for name in cls.size_columns}
        return cls(**sizes_of, dtype=match["dtype"])

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {name: getattr(self, name) for name in self.field_names}


@dataclass(frozen=True, slots=True)
class Tabled:
    """An operation stated by a table; `operation` is its record."""

    name: str
    """Its name, with which problems and options begin."""
    summary: str
    """Description of the operation in a few words."""
    sizes: tuple[str, ...]
    """Sizes of a problem: columns of its tables, and options of `ckh predict`."""
    kernel: str
    """Pattern of kernel names: {block} is an integer, {mode:online|twopass} one of these words."""
    flops: Callable[[Any], float]
    """Floating-point operations of a problem."""
    bytes: Callable[[Any], float]
    """Bytes that a problem moves at least."""
    dtype: str = "fp16"
    """Element type where neither a table nor {dtype:fp16|fp32} in kernel names states one."""

    def operation(self) -> Operation[Any, Any]:
        """Return the record, for an entry point of the group `ckh.operations`."""
        words = {
            name: tuple(choices.split("|")) if choices else ()
            for _, name, choices, _ in Formatter().parse(self.kernel)
            if name
        }
        coded = {name: choices for name, choices in words.items() if choices}
        texts = [name for name in coded if name != "dtype"]
        numbers = [name for name in words if not words[name]]
        problem_type, kernel_type = self._problem_type(), self._kernel_type(words)
        pools = self._pools(kernel_type, words)
        identity = ("dtype", *self.sizes)

        def problem_columns(problems: Sequence[Any]) -> dict[str, list[Any]]:
            return {name: [getattr(problem, name) for problem in problems] for name in identity}

        def kernel_columns(kernels: Sequence[Any], _encoding: object) -> dict[str, list[Any]]:
            return {name: column_of(kernels, name).tolist() for name in (*numbers, *texts)}

        def candidates(problem: Any, arch: Any, model: Any, only: Any = None) -> Any:
            return pools.candidates(problem, arch, problem.dtype, model=model, only=only)

        sets = NamedSets(problem_type, {}, self.dtype)
        return Operation(
            name=self.name,
            summary=self.summary,
            prefix=f"{self.name}_",
            problems=Problems(
                identity=identity,
                sizes=self.sizes,
                parse=problem_type.parsed,
                of_row=lambda row: problem_type(
                    **{name: int(row[name]) for name in self.sizes}, dtype=str(row["dtype"])
                ),
                columns=problem_columns,
                features=problem_columns,
                place=lambda problem: [log2(getattr(problem, name)) for name in self.sizes],
                split_by=identity,
                load=sets.load,
                set_names=sets.names,
                requested=lambda: self._requested(problem_type),
            ),
            kernels=Kernels(
                type=kernel_type,
                parse=pools.parse,
                name=self._kernel_name,
                columns=kernel_columns,
                features=kernel_columns,
                mismatch=lambda kernel, problem: (
                    "" if kernel.dtype == problem.dtype else f"{kernel.dtype} on {problem.canonical()}"
                ),
                candidates=candidates,
                listed=candidates,
                key_of=lambda problem: problem.dtype,
                slice_column=(*texts, *numbers, "dtype")[0],
            ),
            training=Training(
                columns=dataset_columns(
                    (Column("dtype", "string", "", "element type"),),
                    tuple(Column(name, "int64", "", f"problem size {name}") for name in self.sizes),
                    (
                        *(Column(name, "int64", "", f"kernel parameter {name}") for name in numbers),
                        *(Column(name, "string", "", f"kernel parameter {name}") for name in texts),
                    ),
                ),
                model_per=() if "dtype" in coded else ("dtype",),
                engine=self._engine(numbers, coded),
                input_columns=(*self.sizes, *numbers, *coded),
                model_files={TIMED_NAME: pools.timed_file},
                formats=lambda: (
                    TableForm(
                        problem_type, pools.parse, self.sizes, lambda text, *_: pools.parse(text), self._kernel_name
                    ).formats
                ),
            ),
        )

    def _problem_type(self) -> type[Any]:
        body = {
            "__annotations__": dict.fromkeys(self.sizes, "int") | {"dtype": "str"},
            "dtype": self.dtype,
            "op_type": self.name,
            "size_columns": {name: name for name in self.sizes},
            "required": self.sizes,
            "work": (self.flops, self.bytes),
        }
        kind: Any = type(Record)
        problem_type: type[Any] = kind(f"{self.name}_problem", (TabledProblem,), body)
        return problem_type

    def _kernel_type(self, words: Mapping[str, tuple[str, ...]]) -> type[Any]:
        fields: list[Any] = [(name, str if words[name] else int) for name in words if name != "dtype"]
        more = {"is_complete": True, "missing": ()}
        fields.append(("dtype", str, self.dtype))
        return make_dataclass(f"{self.name}_kernel", fields, frozen=True, order=True, namespace=more)

    def _kernel_name(self, kernel: Any) -> str:
        parts = Formatter().parse(self.kernel)
        return "".join(text + (str(getattr(kernel, name)) if name else "") for text, name, _, _ in parts)

    def _pools(self, kind: type[Any], words: Mapping[str, tuple[str, ...]]) -> Pools[Any]:
        """Return pools of the kernels that a model was trained on, which no rule refuses."""
        pattern = "".join(
            re.escape(text) + (f"(?P<{name}>{either(words[name]) if words[name] else _INTEGER})" if name else "")
            for text, name, _, _ in Formatter().parse(self.kernel)
        )

        def parse(text: str) -> Any:
            if (match := re.fullmatch(pattern, text.strip())) is None:
                raise DataError(f"not a kernel of {self.name}: {text!r}", f"as {self.kernel}", code="bad-kernel")
            return kind(**{name: value if words[name] else int(value) for name, value in match.groupdict().items()})

        rules: Rules[Any] = Rules((), (), (_same_dtype,), lambda _kernel: ())
        return Pools(
            kind, rules, lambda *_: KernelTable.of(kind, []), lambda kernel: (kernel.dtype,), parse, self._kernel_name
        )

    def _engine(self, numbers: Sequence[str], texts: Mapping[str, tuple[str, ...]]) -> FeatureEngine:
        codes = {name: {word: float(code) for code, word in enumerate(words)} for name, words in texts.items()}
        features = (
            *(Feature(f"log2_{name}", "log2", log2_of(name)) for name in self.sizes),
            *(Feature(name, "", raw(name)) for name in (*self.sizes, *numbers)),
            *(Feature(name, "category", lambda c, name=name: c.codes(name, codes[name], -1.0)) for name in texts),  # type: ignore[misc]
            *(Feature(f"{size}_per_{name}", "", pieces(size, name)) for size in self.sizes for name in numbers),
            *(Feature(f"{size}_fills_{name}", "", fill(size, name)) for size in self.sizes for name in numbers),
        )
        return FeatureEngine(self.name, features, tuple(texts), {}, {}, frozenset((*numbers, *texts)) - {"dtype"})

    def _requested(self, problem_type: type[Any]) -> Requested[Any]:
        def made(given: Mapping[str, Any], _variant: str, dtype: str) -> Any:
            if missing := [as_option(name) for name in self.sizes if name not in given]:
                raise UsageError(f"{self.name} needs {missing[0]}", code="missing-option")
            return problem_type(**given, dtype=dtype)

        options = tuple(SizeOption(name, f"Size {name} of {self.name}") for name in self.sizes)
        return Requested(options, made, own=self.sizes, default_dtype=self.dtype)


@RuleBook().rule
def _same_dtype(problem: Any, dtype: str) -> Iterator[str]:
    if dtype != problem.dtype:
        yield f"a kernel of {dtype} cannot run a problem of {problem.dtype}"
