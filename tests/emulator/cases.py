"""All tested instructions by architecture, for assemble.py to assemble."""

from __future__ import annotations

from tests.emulator import vector_cases

# name of the instruction → size of a block, blocks, K, types of A and B
MATRIX = {
    "v_mfma_f32_32x32x2_f32": (32, 1, 2, "fp32", "fp32"),
    "v_mfma_f32_16x16x4_f32": (16, 1, 4, "fp32", "fp32"),
    "v_mfma_f32_32x32x1_2b_f32": (32, 2, 1, "fp32", "fp32"),
    "v_mfma_f32_16x16x1_4b_f32": (16, 4, 1, "fp32", "fp32"),
    "v_mfma_f32_4x4x1_16b_f32": (4, 16, 1, "fp32", "fp32"),
    "v_mfma_f32_32x32x8_f16": (32, 1, 8, "fp16", "fp16"),
    "v_mfma_f32_16x16x16_f16": (16, 1, 16, "fp16", "fp16"),
    "v_mfma_f32_32x32x4_2b_f16": (32, 2, 4, "fp16", "fp16"),
    "v_mfma_f32_16x16x4_4b_f16": (16, 4, 4, "fp16", "fp16"),
    "v_mfma_f32_4x4x4_16b_f16": (4, 16, 4, "fp16", "fp16"),
    "v_mfma_f32_32x32x8_bf16": (32, 1, 8, "bf16", "bf16"),
    "v_mfma_f32_16x16x16_bf16": (16, 1, 16, "bf16", "bf16"),
    "v_mfma_f32_32x32x4_2b_bf16": (32, 2, 4, "bf16", "bf16"),
    "v_mfma_f32_4x4x4_16b_bf16": (4, 16, 4, "bf16", "bf16"),
    "v_mfma_f32_32x32x16_fp8_fp8": (32, 1, 16, "fp8", "fp8"),
    "v_mfma_f32_32x32x16_fp8_bf8": (32, 1, 16, "fp8", "bf8"),
    "v_mfma_f32_32x32x16_bf8_fp8": (32, 1, 16, "bf8", "fp8"),
    "v_mfma_f32_32x32x16_bf8_bf8": (32, 1, 16, "bf8", "bf8"),
    "v_mfma_f32_16x16x32_fp8_fp8": (16, 1, 32, "fp8", "fp8"),
    "v_mfma_f32_16x16x32_fp8_bf8": (16, 1, 32, "fp8", "bf8"),
    "v_mfma_f32_16x16x32_bf8_fp8": (16, 1, 32, "bf8", "fp8"),
    "v_mfma_f32_16x16x32_bf8_bf8": (16, 1, 32, "bf8", "bf8"),
    "v_mfma_i32_32x32x16_i8": (32, 1, 16, "int8", "int8"),
    "v_mfma_i32_16x16x32_i8": (16, 1, 32, "int8", "int8"),
}
MATRIX_950 = {
    "v_mfma_f32_32x32x16_f16": (32, 1, 16, "fp16", "fp16"),
    "v_mfma_f32_16x16x32_f16": (16, 1, 32, "fp16", "fp16"),
    "v_mfma_f32_32x32x16_bf16": (32, 1, 16, "bf16", "bf16"),
    "v_mfma_f32_16x16x32_bf16": (16, 1, 32, "bf16", "bf16"),
    "v_mfma_i32_32x32x32_i8": (32, 1, 32, "int8", "int8"),
    "v_mfma_i32_16x16x64_i8": (16, 1, 64, "int8", "int8"),
    "v_mfma_f32_16x16x32_fp8_bf8": (16, 1, 32, "fp8", "bf8"),
}
# What the formats of small elements are called in instructions, in the order of their numbers.
SMALL = ("fp8", "bf8", "fp6", "bf6", "fp4")
SMALL_SHAPES = {"v_mfma_f32_16x16x128_f8f6f4": (16, 1, 128), "v_mfma_f32_32x32x64_f8f6f4": (32, 1, 64)}
SMALL_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def small_text(name: str, type_a: str, type_b: str, scales: str = "") -> str:
    """The instruction on small elements, with the registers of `matrix_text`, and scales in v[48] and v[49]."""
    results = SMALL_SHAPES[name.replace("_scale", "")][0] ** 2 // 64
    a, b = (_range("v", start, SMALL_BITS[kind] * 4) for start, kind in ((0, type_a), (16, type_b)))
    formats = f" cbsz:{SMALL.index(type_a)} blgp:{SMALL.index(type_b)}"
    return f"{name} {_range('v', 64, results * 4)}, {a}, {b}, {_range('v', 80, results * 4)}{scales}{formats}"


SCALED = ", v48, v49 op_sel:[0,1,0] op_sel_hi:[1,0,0]"  # bytes 2 of A's register and 1 of B's
BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "bf8": 1.0, "int8": 1.0}
ACCUMULATORS = ("v", "a")  # where C and D may be


def matrix_text(name: str, file: str) -> str:
    """The instruction with A from register 0, B from 16, C from 32 and D from 64 on."""
    size, blocks, depth, type_a, type_b = (MATRIX | MATRIX_950)[name]
    results = size * size * blocks // 64
    a, b = (_range("v", start, depth * size * blocks * BYTES[kind] / 64) for start, kind in ((0, type_a), (16, type_b)))
    return f"{name} {_range(file, 64, results * 4)}, {a}, {b}, {_range(file, 32, results * 4)}"


def _range(file: str, start: int, size: float) -> str:
    count = max(1, int(size) // 4)
    return f"{file}[{start}:{start + count - 1}]" if count > 1 else f"{file}{start}"


_LANES = [
    "v_readfirstlane_b32 s8, v0",
    "v_readlane_b32 s8, v0, 17",
    "v_writelane_b32 v0, s8, 17",
    "v_accvgpr_write_b32 a3, v0",
    "v_accvgpr_read_b32 v6, a3",
    "v_mov_b32_dpp v6, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v6, v0 row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v6, v0 row_ror:3 row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v6, v0 row_bcast:15 row_mask:0xa bank_mask:0xf",
    "v_add_u32_dpp v6, v0, v2 row_shl:4 row_mask:0xf bank_mask:0xf bound_ctrl:0",
    "v_add_u32_sdwa v6, v0, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
    "v_mov_b32_sdwa v6, v0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0",
    "v_cndmask_b32 v6, v0, v2, vcc",
    "v_add_co_u32 v6, vcc, v0, v2",
    "v_addc_co_u32 v8, vcc, v2, v4, vcc",
    "v_mad_u64_u32 v[6:7], vcc, v0, v2, v[4:5]",
    "v_cmpx_lt_u32 vcc, v0, v2",
    "v_mbcnt_lo_u32_b32 v6, -1, 0",
    "v_mbcnt_hi_u32_b32 v6, -1, v6",
    "v_fma_mix_f32 v6, v0, v2, v4 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
    "v_fma_mixhi_f16 v6, v0, v2, v4 op_sel_hi:[0,0,0]",
    "v_pk_add_f16 v6, v0, v2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[0,0]",
    "v_pk_fma_f32 v[6:7], v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1,1]",
]
_SMALL = [
    "v_cvt_f32_fp8 v6, v0",
    "v_cvt_f32_bf8 v6, v0",
    "v_cvt_pk_f32_fp8 v[6:7], v0",
    "v_cvt_pk_f32_bf8 v[6:7], v0",
    "v_cvt_pk_fp8_f32 v6, v0, v2",
    "v_cvt_pk_bf8_f32 v6, v0, v2",
    "v_cvt_pk_fp8_f32 v6, v0, v2 op_sel:[0,0,1]",
    "v_cvt_pk_bf8_f32 v6, v0, v2 op_sel:[0,0,1]",
    "v_cvt_pkrtz_f16_f32 v6, v0, v2",
]
_SCALAR = [
    *(
        f"{name} s8, s4, s6"
        for name in (
            *("s_add_u32", "s_sub_u32", "s_add_i32", "s_sub_i32", "s_min_i32", "s_max_u32", "s_and_b32", "s_or_b32"),
            *("s_xor_b32", "s_andn2_b32", "s_lshl_b32", "s_lshr_b32", "s_ashr_i32", "s_mul_i32", "s_mul_hi_u32"),
            *("s_mul_hi_i32", "s_bfe_u32", "s_bfe_i32", "s_lshl2_add_u32", "s_pack_ll_b32_b16", "s_absdiff_i32"),
            *("s_cselect_b32", "s_bfm_b32"),
        )
    ),
    *(f"{name} s[8:9], s[4:5], s[6:7]" for name in ("s_and_b64", "s_or_b64", "s_xor_b64", "s_cselect_b64")),
    *(f"{name} s[8:9], s[4:5], s6" for name in ("s_lshl_b64", "s_lshr_b64", "s_ashr_i64", "s_bfe_u64")),
    *(f"{name} s8, s4" for name in ("s_not_b32", "s_brev_b32", "s_bcnt1_i32_b32", "s_ff1_i32_b32", "s_flbit_i32_b32")),
    *(f"{name} s8, s4" for name in ("s_sext_i32_i8", "s_sext_i32_i16", "s_abs_i32")),
    *(f"s_cmp_{name} s4, s6" for name in ("eq_i32", "lg_u32", "gt_i32", "lt_u32", "ge_u32", "le_i32")),
    "s_cmp_eq_u64 s[4:5], s[6:7]",
    "s_and_saveexec_b64 s[8:9], s[4:5]",
    "s_mov_b32 s8, 0x12345678",
    "s_mov_b64 s[8:9], -1",
    "s_mov_b64 s[8:9], 0xffffffff",
    "s_movk_i32 s8, -3",
    "s_addk_i32 s8, 5",
    "s_add_i32 s8, s8, s4",
    "s_sub_u32 s6, s6, 1",
    "s_cmp_lg_u32 s6, 0",
    "s_cbranch_scc1 65532",
    "s_cbranch_execz 1",
    "s_branch 1",
    "s_load_dwordx2 s[8:9], s[4:5], 0x8",
    "s_load_dwordx4 s[8:11], s[4:5], 0x0",
    "s_buffer_load_dword s8, s[4:7], 0x4",
    "s_barrier",
    "s_waitcnt lgkmcnt(0)",
    "s_mov_b32 m0, s8",
]
_LDS = [
    *(f"ds_write_{name} v4, v0 offset:16" for name in ("b8", "b16", "b32")),
    "ds_write_b16_d16_hi v4, v0 offset:16",
    "ds_write_b64 v4, v[0:1] offset:16",
    "ds_write_b96 v4, v[0:2] offset:16",
    "ds_write_b128 v4, v[0:3] offset:16",
    "ds_write2_b32 v4, v0, v1 offset0:2 offset1:5",
    "ds_write2st64_b64 v4, v[0:1], v[2:3] offset0:0 offset1:1",
    *(f"ds_read_{name} v6, v4 offset:16" for name in ("u8", "i8", "u16", "i16", "b32", "u16_d16", "u16_d16_hi")),
    "ds_read_b64 v[6:7], v4 offset:16",
    "ds_read_b96 v[6:8], v4 offset:16",
    "ds_read_b128 v[6:9], v4 offset:16",
    "ds_read2_b32 v[6:7], v4 offset0:2 offset1:5",
    "ds_read2st64_b64 v[6:9], v4 offset0:0 offset1:1",
    "ds_bpermute_b32 v6, v4, v0",
    "ds_permute_b32 v6, v4, v0",
    "ds_swizzle_b32 v6, v0 offset:swizzle(SWAP,1)",
    *(f"ds_{name} v4, v0" for name in ("add_u32", "max_u32", "min_i32", "or_b32", "add_f32", "pk_add_f16")),
    "ds_add_rtn_u32 v6, v4, v0",
    "ds_cmpst_rtn_b32 v6, v4, v0, v2",
    "ds_add_u64 v4, v[0:1]",
]
_BUFFER = [
    *(f"buffer_load_{name} v6, v4, s[4:7], s8 offen offset:4" for name in ("ubyte", "sbyte", "ushort", "dword")),
    "buffer_load_short_d16 v6, v4, s[4:7], s8 offen offset:4",
    "buffer_load_short_d16_hi v6, v4, s[4:7], s8 offen offset:4",
    "buffer_load_dwordx2 v[6:7], v4, s[4:7], s8 offen offset:4",
    "buffer_load_dwordx4 v[6:9], v4, s[4:7], s8 offen offset:4",
    "buffer_load_dword v6, v4, s[4:7], 0 idxen",
    "buffer_load_dword v4, s[4:7], s8 offen lds",
    *(f"buffer_store_{name} v0, v4, s[4:7], s8 offen offset:4" for name in ("byte", "short", "dword")),
    "buffer_store_dwordx4 v[0:3], v4, s[4:7], s8 offen offset:4",
    *(f"buffer_atomic_{name} v0, v4, s[4:7], s8 offen offset:4" for name in ("add", "add_f32", "pk_add_f16")),
    "buffer_atomic_add v0, v4, s[4:7], s8 offen offset:4 sc0",
    "buffer_atomic_add_f64 v[0:1], v4, s[4:7], s8 offen",
    "buffer_atomic_cmpswap v[0:1], v4, s[4:7], s8 offen sc0",
]
_MEMORY = [
    "global_load_dword v6, v4, s[4:5] offset:4",
    "global_load_dwordx4 v[6:9], v[4:5], off",
    "global_load_ubyte v6, v4, s[4:5]",
    "global_load_short_d16_hi v6, v4, s[4:5]",
    "global_store_dwordx2 v4, v[0:1], s[4:5] offset:-4",
    "global_atomic_add_f32 v4, v0, s[4:5]",
    "global_atomic_pk_add_bf16 v4, v0, s[4:5]",
    "global_atomic_add v6, v4, v0, s[4:5] sc0",
    "flat_load_dword v6, v[4:5]",
    "flat_store_dword v[4:5], v0",
    "scratch_store_dword off, v0, off offset:8",
    "scratch_load_dword v6, off, off offset:8",
    "scratch_store_dwordx2 v4, v[0:1], off",
    "scratch_load_dwordx2 v[6:7], v4, off",
    "scratch_load_dword v6, off, s8",
]
_COMMON = [
    *("s_endpgm", "s_nop 0"),
    *vector_cases.TEXTS,
    *(_LANES + _SMALL + _SCALAR + _LDS + _BUFFER + _MEMORY),
    *(matrix_text(name, file) for name in MATRIX for file in ACCUMULATORS),
]
_ONLY_950 = [
    *("s_endpgm", "s_barrier", *_SMALL),
    *(case.text for case in vector_cases.GFX950),
    *(matrix_text(name, file) for name in MATRIX_950 for file in ACCUMULATORS),
    *(small_text(name, a, b) for name in SMALL_SHAPES for a in SMALL for b in SMALL),
    *(small_text(name.replace("mfma", "mfma_scale"), "fp8", "fp4", SCALED) for name in SMALL_SHAPES),
    *(f"v_permlane{rows}_swap_b32 v0, v2" for rows in (16, 32)),
    *(f"ds_read_b64_tr_b{bits} v[6:7], v4 offset:64" for bits in (4, 8, 16)),
    "ds_read_b96_tr_b6 v[6:8], v4 offset:64",
    "ds_read_b96 v[6:8], v4 offset:64",
    "buffer_load_dwordx4 v4, s[4:7], s8 offen lds",
    "global_load_lds_dwordx4 v4, s[4:5]",
    "buffer_atomic_pk_add_bf16 v0, v4, s[4:7], s8 offen",
    "v_ashr_pk_i8_i32 v6, v0, v2, v4",
]
# gfx90a has other names for some matrix instructions: its own, and what MATRIX calls them.
NAMES_90A = {
    "v_mfma_f32_32x32x2f32": "v_mfma_f32_32x32x2_f32",
    "v_mfma_f32_32x32x8f16": "v_mfma_f32_32x32x8_f16",
    "v_mfma_f32_16x16x16f16": "v_mfma_f32_16x16x16_f16",
    "v_mfma_f32_32x32x4bf16_1k": "v_mfma_f32_32x32x4_2b_bf16",
    "v_mfma_f32_4x4x4bf16_1k": "v_mfma_f32_4x4x4_16b_bf16",
    "v_mfma_f32_32x32x8bf16_1k": "v_mfma_f32_32x32x8_bf16",
    "v_mfma_f32_16x16x16bf16_1k": "v_mfma_f32_16x16x16_bf16",
}
_ONLY_90A = [
    "s_endpgm",
    *(matrix_text(name, "a").replace(name, own) for own, name in NAMES_90A.items()),
    "buffer_store_dwordx2 v[0:1], v4, s[0:3], 0 offen offset:8",
    "buffer_load_dwordx2 v[6:7], v4, s[0:3], 0 offen offset:8",
    "buffer_load_dword v6, off, s[0:3], s8 offset:8",
    *("buffer_wbinvl1", "buffer_wbinvl1_vol"),
]
TEXTS = {
    "gfx90a": _ONLY_90A,
    "gfx942": list(dict.fromkeys(_COMMON)),
    "gfx950": list(dict.fromkeys(_ONLY_950)),
}
