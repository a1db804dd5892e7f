"""Instructions of gfx9 GPUs: kind, bytes and waits, from name and words.

Names and lengths are the emulator's; fields are those of AMD's "Instinct MI300 Instruction Set Architecture".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckh.strenum import StrEnum

LANES = 64
_WORD_BYTES = 4
_FLOAT = re.compile(r"_(pk_)?(f16|f32|f64|bf16|fp8|bf8)(_|$)|_dot\d")
_MOVE = re.compile(r"v_(mov|accvgpr|perm|swap|read|write|bfi|alignb)")
_PLAIN_BYTES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b64": 8, "b96": 12, "b128": 16}
_MEMORY_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2}
_DWORDS = re.compile(r"dwordx?(\d+)?")
_CACHE_CONTROL = ("buffer_inv", "buffer_wb")  # write back or invalidate a cache
_DS_PERMUTES = ("bpermute", "permute", "swizzle")
_MOST_VM, _MOST_LGKM = 63, 15  # maximum of the s_waitcnt counters


class InstructionKind(StrEnum):
    """Execution unit and purpose of an instruction."""

    MATRIX = "matrix"
    INTEGER = "vector integer"
    FLOAT = "vector float"
    MOVE = "vector move"
    LDS_READ = "LDS read"
    LDS_WRITE = "LDS write"
    LOAD = "memory load"
    STORE = "memory store"
    SCALAR = "scalar"
    SCALAR_LOAD = "scalar load"
    WAIT = "wait"
    BARRIER = "barrier"
    BRANCH = "branch"


VECTOR_KINDS = (InstructionKind.INTEGER, InstructionKind.FLOAT, InstructionKind.MOVE)
MEMORY_KINDS = (InstructionKind.LOAD, InstructionKind.STORE)
LDS_KINDS = (InstructionKind.LDS_READ, InstructionKind.LDS_WRITE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a function."""

    at: int  # offset from the beginning of the function, in bytes
    name: str  # the mnemonic
    kind: InstructionKind  # what executes it
    size: int  # length in bytes
    bytes: int = 0  # bytes that a wave moves to or from memory or LDS
    most_vm: int | None = None  # memory accesses that may be outstanding after a wait; None: it does not wait for them
    most_lgkm: int | None = None  # likewise LDS accesses and scalar loads
    target: int | None = None  # target offset of a branch; None: it is not a branch

    @property
    def is_forward_branch(self) -> bool:
        """True for a branch to a later instruction."""
        return self.target is not None and self.target > self.at


def instruction(at: int, name: str, words: tuple[int, ...]) -> Instruction:
    """An instruction from its mnemonic and words."""
    kind = kind_of(name)
    size = len(words) * _WORD_BYTES
    if kind is InstructionKind.WAIT:
        vm, lgkm = _waits(words[0] & 0xFFFF)
        return Instruction(at, name, kind, size, most_vm=vm, most_lgkm=lgkm)
    if kind is InstructionKind.BRANCH:
        offset = (words[0] & 0xFFFF ^ 0x8000) - 0x8000
        return Instruction(at, name, kind, size, target=at + size + offset * _WORD_BYTES)
    return Instruction(at, name, kind, size, _bytes(name, kind))


def kind_of(name: str) -> InstructionKind:
    """Kind of an instruction by its mnemonic."""
    if name.startswith(("v_mfma", "v_smfmac")):
        return InstructionKind.MATRIX
    if name.startswith("v_"):
        return _vector_kind(name)
    if name.startswith("ds_"):
        return InstructionKind.LDS_WRITE if "write" in name or "add" in name else InstructionKind.LDS_READ
    if name.startswith(_CACHE_CONTROL):
        return InstructionKind.SCALAR
    if name.startswith(("buffer_", "global_", "flat_", "scratch_")):
        return InstructionKind.STORE if "store" in name or "atomic" in name else InstructionKind.LOAD
    return _scalar_kind(name)


def _vector_kind(name: str) -> InstructionKind:
    if _MOVE.match(name):
        return InstructionKind.MOVE
    return InstructionKind.FLOAT if _FLOAT.search(name) else InstructionKind.INTEGER


def _scalar_kind(name: str) -> InstructionKind:
    if name == "s_waitcnt":
        return InstructionKind.WAIT
    if name == "s_barrier":
        return InstructionKind.BARRIER
    if name.startswith(("s_branch", "s_cbranch")):
        return InstructionKind.BRANCH
    return (
        InstructionKind.SCALAR_LOAD
        if name.startswith(("s_load", "s_buffer_load", "s_scratch_load"))
        else InstructionKind.SCALAR
    )


def _waits(operand: int) -> tuple[int | None, int | None]:
    vm, lgkm = operand & 0xF | operand >> 10 & 0x30, operand >> 8 & 0xF
    return (None if vm == _MOST_VM else vm), (None if lgkm == _MOST_LGKM else lgkm)


def _bytes(name: str, kind: InstructionKind) -> int:
    """Bytes moved by a wave with all lanes active."""
    if kind in MEMORY_KINDS:
        return LANES * memory_bytes(name)
    return LANES * lds_bytes(name) if kind in LDS_KINDS else 0


def memory_bytes(name: str) -> int:
    """Bytes moved per lane by a memory access."""
    for part, size in _MEMORY_BYTES.items():
        if part in name:
            return size
    count = _DWORDS.search(name)
    return 0 if "inv" in name or "wb" in name else _WORD_BYTES * int((count and count[1]) or 1)


def lds_bytes(name: str) -> int:
    """Bytes moved per lane by an LDS access."""
    if any(part in name for part in _DS_PERMUTES):
        return _WORD_BYTES
    size = next((_PLAIN_BYTES[part] for part in name.split("_") if part in _PLAIN_BYTES), _WORD_BYTES)
    return size * (2 if re.match(r"ds_(read|write)2", name) else 1)
