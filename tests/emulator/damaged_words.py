"""Instructions that no assembler emits, as words: operands that do not exist, and reserved fields."""

from __future__ import annotations

_VOP3, _SOP1, _SMEM, _LITERAL, V0, _SDWA, _DPP = 0xD0000000, 0xBE800000, 0xC0000000, 255, 256, 249, 250


def vop1(opcode: int, dst: int, src: int) -> int:
    """The word of a vector instruction with one source."""
    return 0x7E000000 | dst << 17 | opcode << 9 | src


def vop3(opcode: int, dst: int, *sources: int) -> tuple[int, int]:
    """The words of a vector instruction with up to three sources."""
    return _VOP3 | opcode << 16 | dst, sum(source << 9 * k for k, source in enumerate(sources))


def sop1(opcode: int, dst: int, src: int) -> tuple[int]:
    """The word of a scalar instruction with one source."""
    return (_SOP1 | dst << 16 | opcode << 8 | src,)


DAMAGED = {
    "v_readlane_b32 s8, v0, v1": vop3(649, 8, V0, V0 + 1),
    "v_writelane_b32 v0, s8, v1": vop3(650, 0, 8, V0 + 1),
    "v_writelane_b32 v0, v1, s8": vop3(650, 0, V0 + 1, 8),
    "v_readlane_b32 s130, v0, s8": vop3(649, 130, V0, 8),
    "v_readfirstlane_b32 s130, v0": (vop1(2, 130, V0),),
    "v_readfirstlane_b32_sdwa s8, v0": (vop1(2, 8, _SDWA), 6 << 8 | 6 << 16),
    "s_mov_b64 s[127:128], -1": sop1(1, 127, 193),
    "s_mov_b64 s[8:9], s[127:128]": sop1(1, 8, 127),
    "s_mov_b32 s8, operand 220": sop1(0, 8, 220),
    "s_getpc_b64 s[127:128]": sop1(28, 127, 0),
    "v_cmp_eq_u32 s[127:128], v0, v1": vop3(0xCA, 127, V0, V0 + 1),
    "v_cmp_eq_u32_sdwa s[127:128], v0, v1": (0x7C000000 | 0xCA << 17 | 1 << 9 | _SDWA, 0xFF << 8 | 6 << 16 | 6 << 24),
    "v_add_co_u32 v6, s[127:128], v0, v1": vop3(281, 6 | 127 << 8, V0, V0 + 1),
    "v_cndmask_b32 v6, v0, v1, s[127:128]": vop3(256, 6, V0, V0 + 1, 127),
    "s_load_dwordx16 s[120:135], s[4:5]": (_SMEM | 4 << 18 | 1 << 17 | 120 << 6 | 2, 0),
    "s_buffer_load_dword s8, s[126:129]": (_SMEM | 8 << 18 | 1 << 17 | 8 << 6 | 63, 0),
    "s_memtime s[127:128]": (_SMEM | 36 << 18 | 127 << 6, 0),
    "v_mov_b32_sdwa v6, v0 dst_sel:7": (vop1(1, 6, _SDWA), 7 << 8 | 6 << 16),
    "v_mov_b32_sdwa v6, v0 src0_sel:7": (vop1(1, 6, _SDWA), 6 << 8 | 7 << 16),
    "v_mov_b32_sdwa v6, v0 dst_unused:3": (vop1(1, 6, _SDWA), 5 << 8 | 3 << 11 | 6 << 16),
    "v_mov_b32_sdwa v6, literal": (vop1(1, 6, _SDWA), _LITERAL | 1 << 23 | 6 << 8 | 6 << 16),
    "v_fmamk_f32_sdwa": (23 << 25 | 6 << 17 | 1 << 9 | _SDWA, 1 << 31),
    "v_fmaak_f32_dpp": (24 << 25 | 6 << 17 | 1 << 9 | _DPP, 0xFF << 24),
    "v_add_f32_e64 v6, literal, v0": vop3(257, 6, _LITERAL, V0),
}
