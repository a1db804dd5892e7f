/* Matrix instructions: D = A B + C, or a few such products of small blocks.

   A lane holds elements of one row of A and one column of B, which follow one another along K; lanes are cut into groups
   that share K. Of D a register holds four rows a lane group in turn; of 4x4 blocks it holds one row. */
#include "operands.h"

int emu_flush_half = 0; /* gfx90a: matrix instructions take subnormal fp16 and bf16 numbers for zero */

typedef enum { E_FP8, E_BF8, E_FP6, E_BF6, E_FP4, E_F32, E_F16, E_BF16, E_I8 } Element; /* small ones as in `Small` */
typedef struct { int size, blocks, k; Element a, b; } Shape;

enum { MOST = 4096 }; /* elements of an operand */

static float small_element(const u32* lane_registers, int j, Element type) {
    static const int BITS[] = {8, 8, 6, 6, 4};
    const int at = j * BITS[type];
    const u32 low = lane_registers[at / 32 * LANES];
    const u32 high = at % 32 + BITS[type] > 32 ? lane_registers[(at / 32 + 1) * LANES] : 0;
    const u32 bits = (u32)((low | (u64)high << 32) >> at % 32) & ((1u << BITS[type]) - 1);
    return small_float(bits, (Small)type);
}

/* Element j of what a lane holds from a register on. */
static inline float element(const u32* lane_registers, int j, Element type) {
    switch (type) {
        case E_F32: return from_bits(lane_registers[j * LANES]);
        case E_F16: case E_BF16: {
            const u32 bits = lane_registers[j / 2 * LANES] >> j % 2 * 16 & 0xffff;
            if (emu_flush_half && !(bits & (type == E_F16 ? 0x7c00 : 0x7f80))) return 0;
            return type == E_F16 ? half(bits) : bfloat(bits);
        }
        case E_I8: return (float)(int8_t)(lane_registers[j / 4 * LANES] >> j % 4 * 8);
        default: return small_element(lane_registers, j, type);
    }
}

typedef struct { const u32 *a, *b; u32 *c, *d; u32 constant; } Operands; /* c NULL: a constant */

static u32 registers_of(Shape s, Element type) {
    static const u32 BITS[] = {8, 8, 6, 6, 4, 32, 16, 16, 8};
    return ((u32)(s.size * s.k * s.blocks) * BITS[type] / LANES + 31) / 32;
}

static Operands operands_of(State* t, u32 w0, u32 w1, Shape s) {
    const u32 src0 = w1 & 0x1ff, src1 = w1 >> 9 & 0x1ff, src2 = w1 >> 18 & 0x1ff;
    u32* results = w0 >> 15 & 1 ? t->acc : t->vgpr;
    const int is_constant = src2 <= 248; /* or an SGPR */
    if (src0 < FIRST_VGPR || src1 < FIRST_VGPR || (src2 < FIRST_VGPR && !is_constant)) { not_emulated(t); return (Operands){0}; }
    const u32 count = (u32)(s.size * s.size * s.blocks) / LANES;
    uses_vector(t, w1 >> 27 & 1 ? t->acc : t->vgpr, src0 - FIRST_VGPR, registers_of(s, s.a));
    uses_vector(t, w1 >> 28 & 1 ? t->acc : t->vgpr, src1 - FIRST_VGPR, registers_of(s, s.b));
    uses_vector(t, results, w0 & 0xff, count);
    if (!is_constant) uses_vector(t, results, src2 - FIRST_VGPR, count);
    return (Operands){
        .a = (w1 >> 27 & 1 ? t->acc : t->vgpr) + (src0 - FIRST_VGPR) * LANES,
        .b = (w1 >> 28 & 1 ? t->acc : t->vgpr) + (src1 - FIRST_VGPR) * LANES,
        .c = src2 < FIRST_VGPR ? NULL : results + (src2 - FIRST_VGPR) * LANES,
        .d = results + (w0 & 0xff) * LANES,
        .constant = is_constant ? t->sgpr[src2] : 0,
    };
}

/* Where element (block, row, column) of C and D is among its registers: for each register and lane. */
static inline int place_in_result(Shape s, int reg, int lane) {
    if (s.size == 4) return (lane / 4 * 4 + reg) * 4 + lane % 4;
    const int per_block = s.size * s.size / LANES, r = reg % per_block;
    const int row = r / 4 * 4 * (LANES / s.size) + lane / s.size * 4 + r % 4;
    return (reg / per_block * s.size + row) * s.size + lane % s.size;
}

/* Sums are rounded in the order of K. Integers are exact: sums of products of int8 are below 2^24. */
static inline void multiply(Operands o, Shape s, const float* scale_a, const float* scale_b) {
    if (!o.a) return;
    static __thread float a[MOST], b[MOST], d[MOST];
    const int groups = LANES / s.size / s.blocks, each = s.k / groups, registers = s.size * s.size * s.blocks / LANES;
    const int is_int = s.a == E_I8;
    for (int lane = 0; lane < LANES; ++lane) {
        const int i = lane % s.size, block = lane / s.size / groups, first = lane / s.size % groups * each;
        for (int j = 0; j < each; ++j) {
            const float x = element(o.a + lane, j, s.a), y = element(o.b + lane, j, s.b);
            a[(block * s.size + i) * s.k + first + j] = scale_a ? x * scale_a[lane] : x;
            b[(block * s.k + first + j) * s.size + i] = scale_b ? y * scale_b[lane] : y;
        }
    }
    for (int reg = 0; reg < registers; ++reg)
        for (int lane = 0; lane < LANES; ++lane)
            d[place_in_result(s, reg, lane)] = is_int ? 0 : from_bits(o.c ? o.c[reg * LANES + lane] : o.constant);
    for (int row = 0; row < s.blocks * s.size; ++row)
        for (int k = 0; k < s.k; ++k) {
            const float x = a[row * s.k + k], *y = &b[(row / s.size * s.k + k) * s.size];
            float* to = &d[row * s.size];
            for (int column = 0; column < s.size; ++column) to[column] += x * y[column];
        }
    for (int reg = 0; reg < registers; ++reg)
        for (int lane = 0; lane < LANES; ++lane) {
            const float sum = d[place_in_result(s, reg, lane)];
            const u32 c = o.c ? o.c[reg * LANES + lane] : o.constant;
            o.d[reg * LANES + lane] = is_int ? c + (u32)(i32)sum : to_bits(sum);
        }
}

static inline void mfma(State* t, const Inst* i, Shape shape) {
    if ((i->w[0] >> 8 & 0x7f) || i->w[1] >> 29) not_emulated(t); /* broadcasts */
    else multiply(operands_of(t, i->w[0], i->w[1], shape), shape, NULL, NULL);
}

/* name, size of a block, blocks, K, elements of A and B */
#define MATRIX(X) \
    X(f32_32x32x2_f32, 32, 1, 2, E_F32, E_F32) \
    X(f32_16x16x4_f32, 16, 1, 4, E_F32, E_F32) \
    X(f32_32x32x1_2b_f32, 32, 2, 1, E_F32, E_F32) \
    X(f32_16x16x1_4b_f32, 16, 4, 1, E_F32, E_F32) \
    X(f32_4x4x1_16b_f32, 4, 16, 1, E_F32, E_F32) \
    X(f32_32x32x8_f16, 32, 1, 8, E_F16, E_F16) \
    X(f32_16x16x16_f16, 16, 1, 16, E_F16, E_F16) \
    X(f32_32x32x16_f16, 32, 1, 16, E_F16, E_F16) \
    X(f32_16x16x32_f16, 16, 1, 32, E_F16, E_F16) \
    X(f32_32x32x4_2b_f16, 32, 2, 4, E_F16, E_F16) \
    X(f32_16x16x4_4b_f16, 16, 4, 4, E_F16, E_F16) \
    X(f32_4x4x4_16b_f16, 4, 16, 4, E_F16, E_F16) \
    X(f32_32x32x8_bf16, 32, 1, 8, E_BF16, E_BF16) \
    X(f32_16x16x16_bf16, 16, 1, 16, E_BF16, E_BF16) \
    X(f32_32x32x16_bf16, 32, 1, 16, E_BF16, E_BF16) \
    X(f32_16x16x32_bf16, 16, 1, 32, E_BF16, E_BF16) \
    X(f32_32x32x4_2b_bf16, 32, 2, 4, E_BF16, E_BF16) \
    X(f32_16x16x4_4b_bf16, 16, 4, 4, E_BF16, E_BF16) \
    X(f32_4x4x4_16b_bf16, 4, 16, 4, E_BF16, E_BF16) \
    X(f32_32x32x16_fp8_fp8, 32, 1, 16, E_FP8, E_FP8) \
    X(f32_32x32x16_fp8_bf8, 32, 1, 16, E_FP8, E_BF8) \
    X(f32_32x32x16_bf8_fp8, 32, 1, 16, E_BF8, E_FP8) \
    X(f32_32x32x16_bf8_bf8, 32, 1, 16, E_BF8, E_BF8) \
    X(f32_16x16x32_fp8_fp8, 16, 1, 32, E_FP8, E_FP8) \
    X(f32_16x16x32_fp8_bf8, 16, 1, 32, E_FP8, E_BF8) \
    X(f32_16x16x32_bf8_fp8, 16, 1, 32, E_BF8, E_FP8) \
    X(f32_16x16x32_bf8_bf8, 16, 1, 32, E_BF8, E_BF8) \
    X(i32_32x32x16_i8, 32, 1, 16, E_I8, E_I8) \
    X(i32_16x16x32_i8, 16, 1, 32, E_I8, E_I8) \
    X(i32_32x32x8_i8, 32, 1, 8, E_I8, E_I8) \
    X(i32_16x16x16_i8, 16, 1, 16, E_I8, E_I8) \
    X(i32_32x32x32_i8, 32, 1, 32, E_I8, E_I8) \
    X(i32_16x16x64_i8, 16, 1, 64, E_I8, E_I8)
#define X(name, ...) \
    static void run_mfma_##name(State* t, const Inst* i) { mfma(t, i, (Shape){__VA_ARGS__}); }
MATRIX(X)
#undef X

/* gfx950: the instruction's fields for broadcasts say what A and B are, in the order of `Small`. */
static Shape small_shape(const Inst* i, u32 w0, u32 w1) {
    const int size = i->op->a;
    return (Shape){size, 1, 2048 / size, (Element)(w0 >> 8 & 7), (Element)(w1 >> 29)};
}
static void run_mfma_f8f6f4(State* t, const Inst* i) {
    const Shape shape = small_shape(i, i->w[0], i->w[1]);
    if (shape.a > E_FP4 || shape.b > E_FP4) not_emulated(t);
    else multiply(operands_of(t, i->w[0], i->w[1], shape), shape, NULL, NULL);
}

/* A power of two for what each lane holds: the byte of a register that op_sel chooses, less 127; 255 is NaN. */
static void scales_of(State* t, const Inst* i, int k, float* scales) {
    const u32 src = i->w[1] >> 9 * k & 0x1ff, byte = (i->w[0] >> (11 + k) & 1) | (i->w[1] >> (27 + k) & 1) << 1;
    const u32 constant = src < FIRST_VGPR ? scalar_operand(t, i, src) : 0;
    for (int lane = 0; lane < LANES; ++lane) {
        const u32 bits = src < FIRST_VGPR ? constant : t->vgpr[(src - FIRST_VGPR) * LANES + (u32)lane];
        const int power = (int)(bits >> 8 * byte & 0xff);
        scales[lane] = power == 255 ? NAN : ldexpf(1, power - 127);
    }
}
static void run_mfma_scale(State* t, const Inst* i) { /* the first two words are the scales' */
    const Shape shape = small_shape(i, i->w[2], i->w[3]);
    float a[LANES], b[LANES];
    if (shape.a > E_FP4 || shape.b > E_FP4) { not_emulated(t); return; }
    scales_of(t, i, 0, a), scales_of(t, i, 1, b);
    multiply(operands_of(t, i->w[2], i->w[3], shape), shape, a, b);
}

static const Op OPS[] = {
#define X(name, ...) {"v_mfma_" #name, run_mfma_##name, 0, "", 0, 0},
    MATRIX(X)
#undef X
    {"v_mfma_f32_16x16x128_f8f6f4", run_mfma_f8f6f4, 0, "", 16, 0},
    {"v_mfma_f32_32x32x64_f8f6f4", run_mfma_f8f6f4, 0, "", 32, 0},
    {"v_mfma_scale_f32_16x16x128_f8f6f4", run_mfma_scale, 0, "", 16, 0},
    {"v_mfma_scale_f32_32x32x64_f8f6f4", run_mfma_scale, 0, "", 32, 0},
};
const Op* matrix_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
