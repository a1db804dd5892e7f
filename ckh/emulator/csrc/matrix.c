/* Matrix instructions. */
#include "numbers.h"

int emu_flush_half = 0; /* MI200: matrix instructions take subnormal fp16 and bf16 numbers for zero */

enum Element { F32, F16, BF16, E_FP8, E_BF8, I8 };

static float element(const u32* file, u32 reg, int lane, int j, enum Element type) {
    switch (type) {
        case F32: return from_bits(file[(reg + j) * LANES + lane]);
        case F16: case BF16: {
            const uint16_t bits = (uint16_t)(file[(reg + j / 2) * LANES + lane] >> (j % 2 * 16));
            if (emu_flush_half && !(bits & (type == F16 ? 0x7c00 : 0x7f80))) return 0;
            return type == F16 ? half(bits) : from_bits((u32)bits << 16);
        }
        default: {
            const uint8_t bits = (uint8_t)(file[(reg + j / 4) * LANES + lane] >> (j % 4 * 8));
            if (type == I8) return (float)(int8_t)bits;
            return small_float(bits, type == E_FP8 ? FP8 : BF8);
        }
    }
}

/* Size of a block, blocks, K, and element types are given by the wrapper of each instruction. */
static inline void mfma(State* t, const Inst* i0, int size, int blocks, int k, enum Element ta, enum Element tb) {
    const u32 *s = t->sgpr, *v = t->vgpr, w0 = i0->w[0], w1 = i0->w[1];
    u32* acc = t->acc;
    const u32 vdst = w0 & 0xff, acc_cd = w0 >> 15 & 1, src0 = w1 & 0x1ff, src1 = w1 >> 9 & 0x1ff, src2 = w1 >> 18 & 0x1ff;
    if ((w0 >> 8 & 0x7f) || w1 >> 29 || src0 < 256 || src1 < 256) { not_emulated(t); return; } /* broadcasts */
    const u32 *fa = w1 >> 27 & 1 ? acc : v, *fb = w1 >> 28 & 1 ? acc : v;
    u32* fd = acc_cd ? acc : t->vgpr;
    const int groups = LANES / size / blocks, each = k / groups; /* lane groups that K is cut into */
    static __thread float a[4096], b[4096], d[4096];
    for (int lane = 0; lane < LANES; ++lane) {
        const int i = lane % size, block = lane / size / groups, g = lane / size % groups;
        for (int j = 0; j < each; ++j) {
            const int kk = g * each + j;
            a[(block * size + i) * k + kk] = element(fa, src0 - 256, lane, j, ta);
            b[(block * k + kk) * size + i] = element(fb, src1 - 256, lane, j, tb);
        }
    }
    /* Result registers: rows of four, dealt to the lane groups in turn; 4x4 blocks have a row a register. */
    const int lane_groups = LANES / size, per_block = size == 4 ? 4 : size * size / LANES;
    for (int pass = 0; pass < 2; ++pass) {
        for (int block = 0; block < blocks; ++block)
            for (int r = 0; r < per_block; ++r)
                for (int lane = 0; lane < LANES; ++lane) {
                    if (size == 4 && lane / 4 != block) continue;
                    const int row = size == 4 ? r : r / 4 * 4 * lane_groups + lane / size * 4 + r % 4;
                    const u32 reg = size == 4 ? r : block * per_block + r;
                    float* at = &d[(block * size + row) * size + lane % size];
                    if (pass) fd[(vdst + reg) * LANES + lane] = to_bits(*at);
                    else *at = from_bits(src2 < 256 ? s[src2] : fd[(src2 - 256 + reg) * LANES + lane]);
                }
        if (pass) break;
        for (int block = 0; block < blocks; ++block)
            for (int i = 0; i < size; ++i)
                for (int kk = 0; kk < k; ++kk) {
                    const float x = a[(block * size + i) * k + kk];
                    float* to = &d[(block * size + i) * size];
                    const float* y = &b[(block * k + kk) * size];
                    for (int j = 0; j < size; ++j) to[j] += x * y[j];
                }
    }
}

/* name, size, blocks, K, types */
#define MATRIX(X) \
    X(f32_32x32x2_f32, 32, 1, 2, F32, F32) \
    X(f32_16x16x4_f32, 16, 1, 4, F32, F32) \
    X(f32_32x32x1_2b_f32, 32, 2, 1, F32, F32) \
    X(f32_16x16x1_4b_f32, 16, 4, 1, F32, F32) \
    X(f32_4x4x1_16b_f32, 4, 16, 1, F32, F32) \
    X(f32_32x32x8_f16, 32, 1, 8, F16, F16) \
    X(f32_16x16x16_f16, 16, 1, 16, F16, F16) \
    X(f32_32x32x16_f16, 32, 1, 16, F16, F16) \
    X(f32_16x16x32_f16, 16, 1, 32, F16, F16) \
    X(f32_32x32x4_2b_f16, 32, 2, 4, F16, F16) \
    X(f32_16x16x4_4b_f16, 16, 4, 4, F16, F16) \
    X(f32_4x4x4_16b_f16, 4, 16, 4, F16, F16) \
    X(f32_32x32x8_bf16, 32, 1, 8, BF16, BF16) \
    X(f32_16x16x16_bf16, 16, 1, 16, BF16, BF16) \
    X(f32_32x32x16_bf16, 32, 1, 16, BF16, BF16) \
    X(f32_16x16x32_bf16, 16, 1, 32, BF16, BF16) \
    X(f32_32x32x4_2b_bf16, 32, 2, 4, BF16, BF16) \
    X(f32_16x16x4_4b_bf16, 16, 4, 4, BF16, BF16) \
    X(f32_4x4x4_16b_bf16, 4, 16, 4, BF16, BF16) \
    X(f32_32x32x16_fp8_fp8, 32, 1, 16, E_FP8, E_FP8) \
    X(f32_32x32x16_fp8_bf8, 32, 1, 16, E_FP8, E_BF8) \
    X(f32_32x32x16_bf8_fp8, 32, 1, 16, E_BF8, E_FP8) \
    X(f32_32x32x16_bf8_bf8, 32, 1, 16, E_BF8, E_BF8) \
    X(f32_16x16x32_fp8_fp8, 16, 1, 32, E_FP8, E_FP8) \
    X(f32_16x16x32_fp8_bf8, 16, 1, 32, E_FP8, E_BF8) \
    X(f32_16x16x32_bf8_fp8, 16, 1, 32, E_BF8, E_FP8) \
    X(f32_16x16x32_bf8_bf8, 16, 1, 32, E_BF8, E_BF8)
#define X(name, size, blocks, k, ta, tb) \
    static void run_mfma_##name(State* t, const Inst* i) { mfma(t, i, size, blocks, k, ta, tb); }
MATRIX(X)
#undef X

/* The same with integers; K is small enough for sums of products of int8 to be exact in float, which C's is not. */
static void mfma_int(State* t, const Inst* i0, int size, int k) {
    const u32 *s = t->sgpr, *v = t->vgpr, w0 = i0->w[0], w1 = i0->w[1];
    u32* acc = t->acc;
    const u32 vdst = w0 & 0xff, src0 = w1 & 0x1ff, src1 = w1 >> 9 & 0x1ff, src2 = w1 >> 18 & 0x1ff;
    if ((w0 >> 8 & 0x7f) || w1 >> 29 || src0 < 256 || src1 < 256) { not_emulated(t); return; }
    const u32 *fa = w1 >> 27 & 1 ? acc : v, *fb = w1 >> 28 & 1 ? acc : v;
    u32* fd = w0 >> 15 & 1 ? acc : t->vgpr;
    const int groups = LANES / size, each = k / groups;
    static __thread int32_t a[2048], b[2048], d[1024];
    for (int lane = 0; lane < LANES; ++lane)
        for (int j = 0; j < each; ++j) {
            a[lane % size * k + lane / size * each + j] = (int8_t)(fa[(src0 - 256 + j / 4) * LANES + lane] >> (j % 4 * 8));
            b[lane % size * k + lane / size * each + j] = (int8_t)(fb[(src1 - 256 + j / 4) * LANES + lane] >> (j % 4 * 8));
        }
    for (int i = 0; i < size; ++i)
        for (int j = 0; j < size; ++j) {
            int32_t sum = 0;
            for (int kk = 0; kk < k; ++kk) sum += a[i * k + kk] * b[j * k + kk];
            d[i * size + j] = sum;
        }
    for (int r = 0; r < size * size / LANES; ++r)
        for (int lane = 0; lane < LANES; ++lane) {
            const int row = r / 4 * 4 * groups + lane / size * 4 + r % 4;
            const u32 c = src2 < 256 ? s[src2] : fd[(src2 - 256 + r) * LANES + lane];
            d[row * size + lane % size] += (int32_t)c;
        }
    for (int r = 0; r < size * size / LANES; ++r)
        for (int lane = 0; lane < LANES; ++lane)
            fd[(vdst + r) * LANES + lane] = (u32)d[(r / 4 * 4 * groups + lane / size * 4 + r % 4) * size + lane % size];
}
#define MATRIX_INT(X) \
    X(i32_32x32x16_i8, 32, 16) \
    X(i32_16x16x32_i8, 16, 32) \
    X(i32_32x32x32_i8, 32, 32) \
    X(i32_16x16x64_i8, 16, 64)
#define X(name, size, k) \
    static void run_mfma_##name(State* t, const Inst* i) { mfma_int(t, i, size, k); }
MATRIX_INT(X)
#undef X

static const Op OPS[] = {
#define X(name, ...) {"v_mfma_" #name, run_mfma_##name, 0, "", 0, 0},
    MATRIX(X) MATRIX_INT(X)
#undef X
};
const Op* matrix_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
