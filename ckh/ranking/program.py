"""The features that problems enter, computed in C: formulas are recorded once and run as a list of steps.

Text of a problem (its direction, dtype, layout) is part of the recording, of which there is one for each such text.
What C has no operation for, such as logarithms, NumPy computes between two runs, so that every value is NumPy's to the
last bit. A feature that cannot be recorded is computed by the pool as without C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ckh.ranking import partial_c
from ckh.ranking.axes import coded, keys
from ckh.ranking.pool import Kind, Values
from ckh.ranking.recording import CONSTANT, COPY, INPUT, OPERATIONS, Recording
from ckh.ranking.symbolic import FormulaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ckh.features.engine import Array
    from ckh.ranking.pool import Pool
    from ckh.ranking.recording import Shape

    Floats = NDArray[np.float64]
    Ints = NDArray[np.intp]

_NUMBERS = {name: number for number, name in enumerate(OPERATIONS)}
_MOST_OPERANDS = 3
_MOST_TEXTS = 64  # recordings that are kept
_MANY = 8  # problems for which recording pays at once; else it does from the second call on


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """Steps for C, and functions that NumPy computes afterwards: which, of which registers, to which."""

    code: NDArray[np.int32]
    functions: tuple[tuple[np.ufunc, Ints, Ints], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Steps from a problem's numbers to its features.

    Attributes:
        stages: what is done.
        constants: what steps read besides registers.
        inputs: where the registers of the problem's numbers begin; those of its features begin at 0.
        size: number of registers.
        left_out: features that the program does not compute, by their place in the pool.
    """

    stages: tuple[_Stage, ...]
    constants: Floats
    inputs: int
    size: int
    left_out: frozenset[int]

    def run(self, numbers: Floats) -> Floats:
        """The registers of problems, shape (problems, size).

        Args:
            numbers: the problems' numbers, shape (problems, inputs).
        """
        registers = np.empty((len(numbers), self.size))
        registers[:, self.inputs : self.inputs + numbers.shape[1]] = numbers
        for stage in self.stages:
            partial_c.compute(stage.code, self.constants, registers)
            for function, of, to in stage.functions:
                with np.errstate(all="ignore"):
                    registers[:, to] = function(registers[:, of])
        return registers


class Programs:
    """Computes what problems enter of a pool's features."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[tuple[tuple[str, str], ...], Program | None] = {}

    def values(self, problems: Mapping[str, Array], count: int) -> Values:
        """As the pool's `values`, to the last bit.

        Raises:
            DataError: a column is missing.
        """
        given = self._pool.given(problems)
        texts = {name: column for name, column in given.items() if column.dtype.kind not in "biuf"}
        numbers = np.empty((count, len(given) - len(texts)))
        for index, name in enumerate(name for name in given if name not in texts):
            numbers[:, index] = given[name]
        if all(len(column) == 1 for column in texts.values()):
            return self._of_text(given, texts, numbers)
        groups = keys([coded(np.broadcast_to(column, count)) for column in texts.values()], count)
        whole = Values(np.empty((count, self._pool.shape[0])), np.empty((count, *self._pool.shape[1:])))
        for group, first in enumerate(groups.first):
            rows = np.flatnonzero(groups.of == group)
            some = {name: column if len(column) == 1 else column[rows] for name, column in given.items()}
            text = {name: column if len(column) == 1 else column[first : first + 1] for name, column in texts.items()}
            part = self._of_text(some | text, text, numbers[rows])
            whole.constants[rows], whole.rows[rows] = part.constants, part.rows
        return whole

    def _of_text(self, given: Mapping[str, Array], texts: Mapping[str, Array], numbers: Floats) -> Values:
        key = tuple((name, str(column[0])) for name, column in texts.items())
        program = self._known.get(key)
        if program is None:
            if len(self._known) >= _MOST_TEXTS:
                self._known.clear()
            if key not in self._known and len(numbers) < _MANY:
                self._known[key] = None
                return self._pool.values(given, len(numbers))
            program = self._known[key] = record(self._pool, [name for name in given if name not in texts], texts)
        constants, rows, tiles = self._pool.shape
        registers = program.run(numbers)
        features = registers[:, constants : constants + rows * tiles].reshape(len(numbers), rows, tiles)
        values = Values(registers[:, :constants], features)
        if program.left_out:
            self._pool.fill(values, given, program.left_out)
        return values


def record(pool: Pool, numbers: Sequence[str], texts: Mapping[str, Array]) -> Program:
    """The program for problems of a text.

    Args:
        pool: whose features it computes.
        numbers: the columns of numbers, in the order of its inputs.
        texts: the other columns, of one row.
    """
    recording = Recording()
    symbols = {name: recording.input(index) for index, name in enumerate(numbers)}
    constants, rows, tiles = pool.shape
    outputs: list[tuple[int, Shape, int]] = []
    left_out = set()
    for index, columns in pool.symbolic(symbols, texts):
        place, feature = pool.placed[index], pool.features[index]
        try:
            number = recording.number_of(feature.formula(columns))
        except FormulaError:
            left_out.add(index)
            continue
        if place.kind == Kind.CONSTANT:
            outputs.append((place.row, (1, 1), number))
        else:
            outputs.append((constants + place.row * tiles, (place.rows, tiles), number))
    return _Assembler(recording, outputs, constants + rows * tiles, len(numbers)).program(frozenset(left_out))


class _Assembler:
    """Gives steps their registers, and puts them in stages.

    Args:
        recording: the steps.
        outputs: first register, shape and step of each feature.
        size: registers of all features.
        inputs: number of inputs.
    """

    def __init__(self, recording: Recording, outputs: Sequence[tuple[int, Shape, int]], size: int, inputs: int) -> None:
        self._steps = recording.steps
        self._outputs = outputs
        self._inputs = size
        self._size = size + inputs
        sizes = np.cumsum([0, *(constant.size for constant in recording.constants)])
        self._constants = np.concatenate([np.zeros(1), *(constant.ravel() for constant in recording.constants)])
        self._first = 1 + sizes  # of each constant
        self._codes: list[list[tuple[int, ...]]] = []
        self._functions: list[dict[str, tuple[list[Ints], list[Ints]]]] = []
        self._at: dict[int, int] = {}  # where the values of a step are; negative: ~ among the constants

    def program(self, left_out: frozenset[int]) -> Program:
        """Assemble everything."""
        written: dict[int, int] = {}  # outputs that a step can write to directly
        for at, shape, number in self._outputs:
            if self._steps[number].shape == shape and self._steps[number].operation not in {INPUT, CONSTANT}:
                written.setdefault(number, at)
        stage_of: dict[int, int] = {}
        for number in self._needed():
            stage_of[number] = self._add(number, written.get(number), stage_of)
        for at, shape, number in self._outputs:
            if written.get(number) != at:
                self._emit(COPY, at, shape, (number,), stage_of[number] + self._is_function(number))
        stages = tuple(
            _Stage(np.array(code, np.int32).reshape(-1, 8), tuple(_function(*item) for item in functions.items()))
            for code, functions in zip(self._codes, self._functions, strict=True)
        )
        return Program(stages, self._constants, self._inputs, self._size, left_out)

    def _needed(self) -> list[int]:
        needed = {number for _, _, number in self._outputs}
        for number in range(len(self._steps) - 1, -1, -1):
            if number in needed and self._steps[number].operation not in {INPUT, CONSTANT}:
                needed.update(self._steps[number].operands)
        return sorted(needed)

    def _is_function(self, number: int) -> bool:
        return self._steps[number].operation not in {*_NUMBERS, INPUT, CONSTANT}

    def _add(self, number: int, at: int | None, stage_of: Mapping[int, int]) -> int:
        """Give a step its place; the stage that it is computed in."""
        step = self._steps[number]
        if step.operation == INPUT:
            self._at[number] = self._inputs + step.operands[0]
            return 0
        if step.operation == CONSTANT:
            self._at[number] = ~int(self._first[step.operands[0]])
            return 0
        if at is None:
            at = self._size
            self._size += step.shape[0] * step.shape[1]
        self._at[number] = at
        stage = max(stage_of[operand] + self._is_function(operand) for operand in step.operands)
        if self._is_function(number):
            of = np.arange(step.shape[0] * step.shape[1])
            self._open(stage)
            ins, outs = self._functions[stage].setdefault(step.operation, ([], []))
            ins.append(of + self._at[step.operands[0]])
            outs.append(of + at)
        else:
            self._emit(step.operation, at, step.shape, step.operands, stage)
        return stage

    def _open(self, stage: int) -> None:
        while len(self._codes) <= stage:
            self._codes.append([])
            self._functions.append({})

    def _emit(self, operation: str, at: int, shape: Shape, operands: Sequence[int], stage: int) -> None:
        """Steps of C: number, width, first register to write and to read, and which operands are rows, as bits."""
        self._open(stage)
        classes, tiles = shape
        for of_class in range(classes):
            places, rows = [], 0
            for index, operand in enumerate(operands):
                own_classes, own_tiles = self._steps[operand].shape
                skipped = of_class * own_tiles if own_classes > 1 else 0
                places.append(self._at[operand] + (skipped if self._at[operand] >= 0 else -skipped))
                rows |= (own_tiles > 1) << index
            places += [0] * (_MOST_OPERANDS - len(places))
            self._codes[stage].append((_NUMBERS[operation], tiles, at + of_class * tiles, *places, rows, 0))


def _function(name: str, places: tuple[list[Ints], list[Ints]]) -> tuple[Any, Ints, Ints]:
    return getattr(np, name), np.concatenate(places[0]), np.concatenate(places[1])
