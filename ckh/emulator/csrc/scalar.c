/* Scalar arithmetic. */
#include "operands.h"

/* name, width of operands, result, SCC after it (its old value: scc) */
#define SCALAR2(X) \
    X(s_add_u32, u32, x + y, r < x) X(s_sub_u32, u32, x - y, x < y) \
    X(s_add_i32, u32, x + y, ((~(x ^ y) & (x ^ r)) >> 31)) X(s_sub_i32, u32, x - y, (((x ^ y) & (x ^ r)) >> 31)) \
    X(s_addc_u32, u32, x + y + scc, ((u64)x + y + scc) >> 32) X(s_subb_u32, u32, x - y - scc, (u64)y + scc > x) \
    X(s_min_i32, u32, (i32)x < (i32)y ? x : y, (i32)x < (i32)y) X(s_min_u32, u32, x < y ? x : y, x < y) \
    X(s_max_i32, u32, (i32)x >= (i32)y ? x : y, (i32)x >= (i32)y) X(s_max_u32, u32, x >= y ? x : y, x >= y) \
    X(s_cselect_b32, u32, scc ? x : y, scc) X(s_cselect_b64, u64, scc ? x : y, scc) \
    X(s_and_b32, u32, x & y, r != 0) X(s_and_b64, u64, x & y, r != 0) \
    X(s_or_b32, u32, x | y, r != 0) X(s_or_b64, u64, x | y, r != 0) \
    X(s_xor_b32, u32, x ^ y, r != 0) X(s_xor_b64, u64, x ^ y, r != 0) \
    X(s_andn2_b32, u32, x & ~y, r != 0) X(s_andn2_b64, u64, x & ~y, r != 0) \
    X(s_orn2_b32, u32, x | ~y, r != 0) X(s_orn2_b64, u64, x | ~y, r != 0) \
    X(s_nand_b32, u32, ~(x & y), r != 0) X(s_nand_b64, u64, ~(x & y), r != 0) \
    X(s_nor_b32, u32, ~(x | y), r != 0) X(s_nor_b64, u64, ~(x | y), r != 0) \
    X(s_xnor_b32, u32, ~(x ^ y), r != 0) X(s_xnor_b64, u64, ~(x ^ y), r != 0) \
    X(s_lshl_b32, u32, x << (y & 31), r != 0) X(s_lshl_b64, u64, x << (y & 63), r != 0) \
    X(s_lshr_b32, u32, x >> (y & 31), r != 0) X(s_lshr_b64, u64, x >> (y & 63), r != 0) \
    X(s_ashr_i32, u32, (u32)((i32)x >> (y & 31)), r != 0) X(s_ashr_i64, u64, (u64)((i64)x >> (y & 63)), r != 0) \
    X(s_bfm_b32, u32, ((1u << (x & 31)) - 1) << (y & 31), scc) X(s_bfm_b64, u64, ((1ull << (x & 63)) - 1) << (y & 63), scc) \
    X(s_mul_i32, u32, x * y, scc) \
    X(s_bfe_u32, u32, bits_of(x, y & 31, y >> 16 & 127, 0), r != 0) \
    X(s_bfe_i32, u32, (u32)bits_of((u64)(i64)(i32)x, y & 31, y >> 16 & 127, 1), r != 0) \
    X(s_bfe_u64, u64, bits_of(x, y & 63, (u32)y >> 16 & 127, 0), r != 0) \
    X(s_bfe_i64, u64, bits_of(x, y & 63, (u32)y >> 16 & 127, 1), r != 0) \
    X(s_absdiff_i32, u32, (i32)(x - y) < 0 ? y - x : x - y, r != 0) \
    X(s_mul_hi_u32, u32, (u32)((u64)x * y >> 32), scc) X(s_mul_hi_i32, u32, (u32)((i64)(i32)x * (i32)y >> 32), scc) \
    X(s_lshl1_add_u32, u32, (x << 1) + y, (((u64)x << 1) + y) >> 32 != 0) X(s_lshl2_add_u32, u32, (x << 2) + y, (((u64)x << 2) + y) >> 32 != 0) \
    X(s_lshl3_add_u32, u32, (x << 3) + y, (((u64)x << 3) + y) >> 32 != 0) X(s_lshl4_add_u32, u32, (x << 4) + y, (((u64)x << 4) + y) >> 32 != 0) \
    X(s_pack_ll_b32_b16, u32, (x & 0xffff) | y << 16, scc) X(s_pack_lh_b32_b16, u32, (x & 0xffff) | (y & 0xffff0000u), scc) \
    X(s_pack_hh_b32_b16, u32, (x >> 16) | (y & 0xffff0000u), scc)
#define SCALAR1(X) \
    X(s_mov_b32, u32, u32, x, scc) X(s_mov_b64, u64, u64, x, scc) \
    X(s_not_b32, u32, u32, ~x, r != 0) X(s_not_b64, u64, u64, ~x, r != 0) \
    X(s_brev_b32, u32, u32, reverse(x), scc) X(s_brev_b64, u64, u64, reverse64(x), scc) \
    X(s_bcnt0_i32_b32, u32, u32, 32 - (u32)__builtin_popcount(x), r != 0) X(s_bcnt0_i32_b64, u64, u32, 64 - (u32)__builtin_popcountll(x), r != 0) \
    X(s_bcnt1_i32_b32, u32, u32, (u32)__builtin_popcount(x), r != 0) X(s_bcnt1_i32_b64, u64, u32, (u32)__builtin_popcountll(x), r != 0) \
    X(s_ff0_i32_b32, u32, u32, ctz(~x), scc) X(s_ff0_i32_b64, u64, u32, ~x ? (u32)__builtin_ctzll(~x) : ~0u, scc) \
    X(s_ff1_i32_b32, u32, u32, ctz(x), scc) X(s_ff1_i32_b64, u64, u32, x ? (u32)__builtin_ctzll(x) : ~0u, scc) \
    X(s_flbit_i32_b32, u32, u32, clz(x), scc) X(s_flbit_i32_b64, u64, u32, x ? (u32)__builtin_clzll(x) : ~0u, scc) \
    X(s_flbit_i32, u32, u32, clz(x ^ (u32)((i32)x >> 31)), scc) \
    X(s_flbit_i32_i64, u64, u32, (x ^ (u64)((i64)x >> 63)) ? (u32)__builtin_clzll(x ^ (u64)((i64)x >> 63)) : ~0u, scc) \
    X(s_sext_i32_i8, u32, u32, (u32)(i32)(int8_t)x, scc) X(s_sext_i32_i16, u32, u32, (u32)(i32)(int16_t)x, scc) \
    X(s_abs_i32, u32, u32, (i32)x < 0 ? 0 - x : x, r != 0) \
    X(s_quadmask_b32, u32, u32, (u32)quads(x, 0), r != 0) X(s_quadmask_b64, u64, u64, quads(x, 0), r != 0) \
    X(s_wqm_b32, u32, u32, (u32)quads(x, 1), r != 0) X(s_wqm_b64, u64, u64, quads(x, 1), r != 0)
#define SAVE_EXEC(X) \
    X(s_and_saveexec_b64, x & e) X(s_or_saveexec_b64, x | e) X(s_xor_saveexec_b64, x ^ e) X(s_andn2_saveexec_b64, x & ~e) \
    X(s_orn2_saveexec_b64, x | ~e) X(s_nand_saveexec_b64, ~(x & e)) X(s_nor_saveexec_b64, ~(x | e)) X(s_xnor_saveexec_b64, ~(x ^ e)) \
    X(s_andn1_saveexec_b64, ~x & e) X(s_orn1_saveexec_b64, ~x | e)
#define SCALAR_COMPARES(X) \
    X(s_cmp_eq_i32, u32, x == y) X(s_cmp_lg_i32, u32, x != y) X(s_cmp_gt_i32, i32, x > y) X(s_cmp_ge_i32, i32, x >= y) \
    X(s_cmp_lt_i32, i32, x < y) X(s_cmp_le_i32, i32, x <= y) X(s_cmp_eq_u32, u32, x == y) X(s_cmp_lg_u32, u32, x != y) \
    X(s_cmp_gt_u32, u32, x > y) X(s_cmp_ge_u32, u32, x >= y) X(s_cmp_lt_u32, u32, x < y) X(s_cmp_le_u32, u32, x <= y) \
    X(s_bitcmp0_b32, u32, !(x >> (y & 31) & 1)) X(s_bitcmp1_b32, u32, x >> (y & 31) & 1) \
    X(s_bitcmp0_b64, u64, !(x >> (y & 63) & 1)) X(s_bitcmp1_b64, u64, x >> (y & 63) & 1) \
    X(s_cmp_eq_u64, u64, x == y) X(s_cmp_lg_u64, u64, x != y)
/* With a 16-bit constant k; d is the destination's value. */
#define SCALAR_CONSTANT(X) \
    X(s_cmpk_eq_i32, d, (i32)d == k) X(s_cmpk_lg_i32, d, (i32)d != k) X(s_cmpk_gt_i32, d, (i32)d > k) X(s_cmpk_ge_i32, d, (i32)d >= k) \
    X(s_cmpk_lt_i32, d, (i32)d < k) X(s_cmpk_le_i32, d, (i32)d <= k) X(s_cmpk_eq_u32, d, d == z) X(s_cmpk_lg_u32, d, d != z) \
    X(s_cmpk_gt_u32, d, d > z) X(s_cmpk_ge_u32, d, d >= z) X(s_cmpk_lt_u32, d, d < z) X(s_cmpk_le_u32, d, d <= z) \
    X(s_movk_i32, (u32)k, scc) X(s_cmovk_i32, scc ? (u32)k : d, scc) X(s_mulk_i32, d * (u32)k, scc) \
    X(s_addk_i32, d + (u32)k, (i64)(i32)d + k != (i32)(d + (u32)k))

static u64 quads(u64 x, int whole) {
    u64 out = 0;
    for (int n = 0; n < 16; ++n)
        if (x >> 4 * n & 15) out |= whole ? 15ull << 4 * n : 1ull << n;
    return out;
}

#define X(name, type, expression, after) \
    static void run_##name(State* t, const Inst* i) { \
        const type x = operand_##type(t, i, 0), y = operand_##type(t, i, 1); \
        const u32 scc = t->sgpr[SCC]; const type r = (expression); (void)scc; t->sgpr[SCC] = (u32)(after); result_##type(t, i, r); }
SCALAR2(X)
#undef X
#define X(name, from, to, expression, after) \
    static void run_##name(State* t, const Inst* i) { \
        const from x = operand_##from(t, i, 0); const u32 scc = t->sgpr[SCC]; const to r = (expression); \
        t->sgpr[SCC] = (u32)(after); (void)scc; result_##to(t, i, r); }
SCALAR1(X)
#undef X
#define X(name, expression) \
    static void run_##name(State* t, const Inst* i) { \
        const u64 x = operand_u64(t, i, 0), e = exec_of(t), r = (expression); \
        result_u64(t, i, e); set_pair(&t->sgpr[EXEC], r); t->sgpr[SCC] = r != 0; }
SAVE_EXEC(X)
#undef X
#define X(name, type, expression) \
    static void run_##name(State* t, const Inst* i) { \
        const type x = operand_##type(t, i, 0), y = operand_##type(t, i, 1); t->sgpr[SCC] = (expression) != 0; }
SCALAR_COMPARES(X)
#undef X
#define X(name, expression, after) \
    static void run_##name(State* t, const Inst* i) { \
        const i32 k = (int16_t)i->w[0]; const u32 d = t->sgpr[i->dst], z = (uint16_t)k, scc = t->sgpr[SCC]; \
        t->sgpr[i->dst] = (expression); t->sgpr[SCC] = (u32)(after) != 0; (void)d, (void)z, (void)scc; }
SCALAR_CONSTANT(X)
#undef X

static void run_s_cmov_b32(State* t, const Inst* i) { if (t->sgpr[SCC]) result_u32(t, i, operand_u32(t, i, 0)); }
static void run_s_cmov_b64(State* t, const Inst* i) { if (t->sgpr[SCC]) result_u64(t, i, operand_u64(t, i, 0)); }
static void run_s_bitset0_b32(State* t, const Inst* i) { t->sgpr[i->dst] &= ~(1u << (operand_u32(t, i, 0) & 31)); }
static void run_s_bitset1_b32(State* t, const Inst* i) { t->sgpr[i->dst] |= 1u << (operand_u32(t, i, 0) & 31); }
static void run_s_bitset0_b64(State* t, const Inst* i) { result_u64(t, i, pair(&t->sgpr[i->dst]) & ~(1ull << (operand_u32(t, i, 0) & 63))); }
static void run_s_bitset1_b64(State* t, const Inst* i) { result_u64(t, i, pair(&t->sgpr[i->dst]) | 1ull << (operand_u32(t, i, 0) & 63)); }
static void run_s_andn1_wrexec_b64(State* t, const Inst* i) {
    const u64 r = ~operand_u64(t, i, 0) & exec_of(t);
    set_pair(&t->sgpr[EXEC], r), result_u64(t, i, r), t->sgpr[SCC] = r != 0;
}
static void run_s_andn2_wrexec_b64(State* t, const Inst* i) {
    const u64 r = operand_u64(t, i, 0) & ~exec_of(t);
    set_pair(&t->sgpr[EXEC], r), result_u64(t, i, r), t->sgpr[SCC] = r != 0;
}

static const Op OPS[] = {
#define S(name) {#name, run_##name, 0, "", 0, 0},
#define X(name, ...) S(name)
    SCALAR2(X) SCALAR1(X) SAVE_EXEC(X) SCALAR_COMPARES(X) SCALAR_CONSTANT(X)
#undef X
    S(s_cmov_b32) S(s_cmov_b64) S(s_bitset0_b32) S(s_bitset1_b32) S(s_bitset0_b64) S(s_bitset1_b64)
    S(s_andn1_wrexec_b64) S(s_andn2_wrexec_b64)
#undef S
};
const Op* scalar_op(const char* name) {
    const Op* op = op_in(OPS, sizeof OPS / sizeof *OPS, name);
    return op ? op : control_op(name);
}
