/* Vector arithmetic: what each instruction computes, lane by lane. operands.c brings sources into a form where it finds the
   value at its lane, and takes the result from there. Types are a text, result first, of these letters:
     u, i  32 bits        f  fp32         h  fp16           k  16-bit integer      q  64-bit integer     d  fp64
     p  two fp16          P  two 16-bit integers            F  two fp32            m  a bit a lane, in SGPRs
     H, K  as h and k, but the result leaves the register's other half as it is
     C  as u, where the function itself clamps              B  as u, and nothing is modified
     o  the result's old value, as a source */
#include "operands.h"

static u32 field(u32 x, u32 at, u32 width) { return x >> (at & 31) & ((1u << (width & 31)) - 1); }
static u32 signed_field(u32 x, u32 at, u32 width) {
    const u32 w = width & 31;
    return w ? (u32)((i32)((u32)((i32)x >> (at & 31)) << (32 - w)) >> (32 - w)) : 0;
}

static u32 perm(u32 hi, u32 lo, u32 select) {
    const u64 both = (u64)hi << 32 | lo;
    u32 out = 0;
    for (int n = 0; n < 4; ++n) {
        const u32 s = select >> 8 * n & 0xff;
        const u32 b = s < 8 ? both >> 8 * s & 0xff : s < 12 ? (both >> (16 * (s - 8) + 15) & 1 ? 0xff : 0) : s == 12 ? 0 : 0xff;
        out |= b << 8 * n;
    }
    return out;
}
static float dot2_bf16(u32 x, u32 y, float z) {
    return fmaf(bfloat(x >> 16), bfloat(y >> 16), fmaf(bfloat(x & 0xffff), bfloat(y & 0xffff), z));
}
/* Any function of three bits: modifiers say what it is of (0, 0, 0), (0, 0, 1), … (1, 1, 1). */
static u32 bitop3(const Inst* i, u32 x, u32 y, u32 z) {
    const u32 table = (u32)i->neg | (u32)i->abs << 3 | (u32)i->omod << 6;
    u32 out = 0;
    for (u32 n = 0; n < 8; ++n)
        if (table >> n & 1) out |= (n & 4 ? x : ~x) & (n & 2 ? y : ~y) & (n & 1 ? z : ~z);
    return out;
}
static u32 dot2_i16(u32 x, u32 y) { return (u32)((i32)(int16_t)x * (int16_t)y) + (u32)((i32)(int16_t)HI(x) * (int16_t)HI(y)); }
static u32 dot4_i8(u32 x, u32 y) {
    i32 sum = 0;
    for (int n = 0; n < 4; ++n) sum += (int8_t)(x >> 8 * n) * (int8_t)(y >> 8 * n);
    return (u32)sum;
}
static u32 dot4_u8(u32 x, u32 y) {
    u32 sum = 0;
    for (int n = 0; n < 4; ++n) sum += (x >> 8 * n & 0xff) * (y >> 8 * n & 0xff);
    return sum;
}
static u32 sad_u8(u32 x, u32 y) {
    i32 sum = 0;
    for (int n = 0; n < 4; ++n) {
        const i32 d = (i32)(x >> 8 * n & 0xff) - (i32)(y >> 8 * n & 0xff);
        sum += d < 0 ? -d : d;
    }
    return (u32)sum;
}
static u32 op_mul16(u32 x, u32 y) { return x * y; }
static u32 op_add16(u32 x, u32 y) { return x + y; }
static u32 op_sub16(u32 x, u32 y) { return x - y; }
static u32 op_shl16(u32 x, u32 y) { return y << (x & 15); }
static u32 op_shr16(u32 x, u32 y) { return y >> (x & 15); }
static u32 op_ashr16(u32 x, u32 y) { return (u32)((int16_t)y >> (x & 15)); }
static u32 op_maxi16(u32 x, u32 y) { return (int16_t)x > (int16_t)y ? x : y; }
static u32 op_mini16(u32 x, u32 y) { return (int16_t)x < (int16_t)y ? x : y; }
static u32 op_maxu16(u32 x, u32 y) { return x > y ? x : y; }
static u32 op_minu16(u32 x, u32 y) { return x < y ? x : y; }
static u32 op_addf16(u32 x, u32 y) { return half_bits(half(x) + half(y)); }
static u32 op_mulf16(u32 x, u32 y) { return half_bits(half(x) * half(y)); }
static u32 op_minf16(u32 x, u32 y) { return half_bits(min_f(half(x), half(y))); }
static u32 op_maxf16(u32 x, u32 y) { return half_bits(max_f(half(x), half(y))); }

#define HALVES(op) ((u32)(uint16_t)op(LO(U0), LO(U1)) | (u32)(uint16_t)op(HI(U0), HI(U1)) << 16)
#define FLOATS(expression) \
    u64 both = 0; for (int half_ = 0; half_ < 2; ++half_) { \
        const float x = from_bits((u32)(Q0 >> 32 * half_)), y = from_bits((u32)(Q1 >> 32 * half_)); \
        const float z = a->s[2] ? from_bits((u32)(Q2 >> 32 * half_)) : 0; (void)z; \
        both |= (u64)to_bits(expression) << 32 * half_; } a->d.q[n] = both
#define VCC_LANE (pair(&a->t->sgpr[VCC]) >> n & 1)
#define BELOW ((1ull << n) - 1)
#define CLAMPED(x, most) ((u32)(a->i->clamp && (x) > (most) ? (most) : (x)))
#define SATURATED(x) (a->i->clamp ? saturated(x, INT32_MIN, INT32_MAX) : (u32)(x))

/* name, types, where the result goes in d, expression */
#define VECTOR(X) \
    X(v_mov_b32, "uu", u, U0) \
    X(v_mov_b64, "qq", q, Q0) \
    X(v_not_b32, "uu", u, ~U0) \
    X(v_bfrev_b32, "uu", u, reverse(U0)) \
    X(v_ffbh_u32, "uu", u, clz(U0)) \
    X(v_ffbl_b32, "uu", u, ctz(U0)) \
    X(v_ffbh_i32, "uu", u, clz(U0 ^ (u32)(I0 >> 31))) \
    X(v_trunc_f64, "dd", d, trunc(D0)) \
    X(v_ceil_f64, "dd", d, ceil(D0)) \
    X(v_rndne_f64, "dd", d, nearbyint(D0)) \
    X(v_floor_f64, "dd", d, floor(D0)) \
    X(v_fract_f64, "dd", d, fract64(D0)) \
    X(v_fract_f32, "ff", f, fract(F0)) \
    X(v_trunc_f32, "ff", f, truncf(F0)) \
    X(v_ceil_f32, "ff", f, ceilf(F0)) \
    X(v_rndne_f32, "ff", f, nearbyintf(F0)) \
    X(v_floor_f32, "ff", f, floorf(F0)) \
    X(v_exp_f32, "ff", f, (float)exp2((double)F0)) \
    X(v_log_f32, "ff", f, (float)log2((double)F0)) \
    X(v_rcp_f32, "ff", f, 1.0f / F0) \
    X(v_rcp_iflag_f32, "ff", f, 1.0f / F0) \
    X(v_rsq_f32, "ff", f, (float)(1.0 / sqrt((double)F0))) \
    X(v_sqrt_f32, "ff", f, sqrtf(F0)) \
    X(v_sin_f32, "ff", f, turn_sin(F0)) \
    X(v_cos_f32, "ff", f, turn_cos(F0)) \
    X(v_rcp_f64, "dd", d, 1.0 / D0) \
    X(v_rsq_f64, "dd", d, 1.0 / sqrt(D0)) \
    X(v_sqrt_f64, "dd", d, sqrt(D0)) \
    X(v_frexp_exp_i32_f64, "ud", u, (u32)frexp_exponent(D0)) \
    X(v_frexp_mant_f64, "dd", d, frexp_mantissa(D0)) \
    X(v_frexp_exp_i32_f32, "uf", u, (u32)frexp_exponent(F0)) \
    X(v_frexp_mant_f32, "ff", f, (float)frexp_mantissa(F0)) \
    X(v_rcp_f16, "hh", u, half_bits(1.0f / H0)) \
    X(v_sqrt_f16, "hh", u, half_bits(sqrtf(H0))) \
    X(v_rsq_f16, "hh", u, half_bits((float)(1.0 / sqrt((double)H0)))) \
    X(v_log_f16, "hh", u, half_bits((float)log2((double)H0))) \
    X(v_exp_f16, "hh", u, half_bits((float)exp2((double)H0))) \
    X(v_frexp_mant_f16, "hh", u, half_bits((float)frexp_mantissa(H0))) \
    X(v_frexp_exp_i16_f16, "kh", u, (uint16_t)frexp_exponent(H0)) \
    X(v_floor_f16, "hh", u, half_bits(floorf(H0))) \
    X(v_ceil_f16, "hh", u, half_bits(ceilf(H0))) \
    X(v_trunc_f16, "hh", u, half_bits(truncf(H0))) \
    X(v_rndne_f16, "hh", u, half_bits(nearbyintf(H0))) \
    X(v_fract_f16, "hh", u, half_bits(fract(H0))) \
    X(v_sin_f16, "hh", u, half_bits(turn_sin(H0))) \
    X(v_cos_f16, "hh", u, half_bits(turn_cos(H0))) \
    X(v_add_f32, "fff", f, F0 + F1) \
    X(v_sub_f32, "fff", f, F0 - F1) \
    X(v_subrev_f32, "fff", f, F1 - F0) \
    X(v_mul_f32, "fff", f, F0 * F1) \
    X(v_mul_legacy_f32, "fff", f, F0 == 0 || F1 == 0 ? 0 : F0 * F1) \
    X(v_min_f32, "fff", f, min_f(F0, F1)) \
    X(v_max_f32, "fff", f, max_f(F0, F1)) \
    X(v_fmac_f32, "fffo", f, fmaf(F0, F1, F2)) \
    X(v_fmac_f64, "dddo", d, fma(D0, D1, D2)) \
    X(v_mul_i32_i24, "uuu", u, (u32)(((i32)(U0 << 8) >> 8) * (i64)((i32)(U1 << 8) >> 8))) \
    X(v_mul_hi_i32_i24, "uuu", u, (u32)((((i32)(U0 << 8) >> 8) * (i64)((i32)(U1 << 8) >> 8)) >> 32)) \
    X(v_mul_u32_u24, "uuu", u, (u32)((u64)(U0 & 0xffffff) * (U1 & 0xffffff))) \
    X(v_mul_hi_u32_u24, "uuu", u, (u32)((u64)(U0 & 0xffffff) * (U1 & 0xffffff) >> 32)) \
    X(v_min_i32, "uuu", i, I0 < I1 ? I0 : I1) \
    X(v_max_i32, "uuu", i, I0 > I1 ? I0 : I1) \
    X(v_min_u32, "uuu", u, U0 < U1 ? U0 : U1) \
    X(v_max_u32, "uuu", u, U0 > U1 ? U0 : U1) \
    X(v_lshrrev_b32, "uuu", u, U1 >> (U0 & 31)) \
    X(v_ashrrev_i32, "uuu", i, I1 >> (U0 & 31)) \
    X(v_lshlrev_b32, "uuu", u, U1 << (U0 & 31)) \
    X(v_and_b32, "uuu", u, U0 & U1) \
    X(v_or_b32, "uuu", u, U0 | U1) \
    X(v_xor_b32, "uuu", u, U0 ^ U1) \
    X(v_xnor_b32, "uuu", u, ~(U0 ^ U1)) \
    X(v_add_u32, "Cuu", u, CLAMPED((u64)U0 + U1, 0xffffffffu)) \
    X(v_sub_u32, "Cuu", u, U0 < U1 && a->i->clamp ? 0 : U0 - U1) \
    X(v_subrev_u32, "Cuu", u, U1 < U0 && a->i->clamp ? 0 : U1 - U0) \
    X(v_add_i32, "Cuu", u, SATURATED((i64)I0 + I1)) \
    X(v_sub_i32, "Cuu", u, SATURATED((i64)I0 - I1)) \
    X(v_add_f16, "hhh", u, half_bits(H0 + H1)) \
    X(v_sub_f16, "hhh", u, half_bits(H0 - H1)) \
    X(v_subrev_f16, "hhh", u, half_bits(H1 - H0)) \
    X(v_mul_f16, "hhh", u, half_bits(H0 * H1)) \
    X(v_mac_f16, "hhho", u, half_bits(half(half_bits(H0 * H1)) + H2)) \
    X(v_max_f16, "hhh", u, half_bits(max_f(H0, H1))) \
    X(v_min_f16, "hhh", u, half_bits(min_f(H0, H1))) \
    X(v_ldexp_f16, "hhk", u, half_bits(ldexpf(H0, J1))) \
    X(v_add_u16, "kkk", u, (uint16_t)(K0 + K1)) \
    X(v_sub_u16, "kkk", u, (uint16_t)(K0 - K1)) \
    X(v_subrev_u16, "kkk", u, (uint16_t)(K1 - K0)) \
    X(v_mul_lo_u16, "kkk", u, (uint16_t)((u32)K0 * K1)) \
    X(v_lshlrev_b16, "kkk", u, (uint16_t)(K1 << (K0 & 15))) \
    X(v_lshrrev_b16, "kkk", u, (uint16_t)(K1 >> (K0 & 15))) \
    X(v_ashrrev_i16, "kkk", u, (uint16_t)(J1 >> (K0 & 15))) \
    X(v_max_u16, "kkk", u, K0 > K1 ? K0 : K1) \
    X(v_max_i16, "kkk", u, (uint16_t)(J0 > J1 ? J0 : J1)) \
    X(v_min_u16, "kkk", u, K0 < K1 ? K0 : K1) \
    X(v_min_i16, "kkk", u, (uint16_t)(J0 < J1 ? J0 : J1)) \
    X(v_add_i16, "Kkk", u, (uint16_t)(J0 + J1)) \
    X(v_sub_i16, "Kkk", u, (uint16_t)(J0 - J1)) \
    X(v_dot2c_f32_f16, "fuuo", f, fmaf(half(HI(U0)), half(HI(U1)), fmaf(half(LO(U0)), half(LO(U1)), F2))) \
    X(v_dot2c_i32_i16, "uuuo", u, dot2_i16(U0, U1) + U2) \
    X(v_dot4c_i32_i8, "uuuo", u, dot4_i8(U0, U1) + U2) \
    X(v_pk_fmac_f16, "puuo", u, fma_half(LO(U0), LO(U1), LO(U2)) | (u32)fma_half(HI(U0), HI(U1), HI(U2)) << 16) \
    X(v_mad_i32_i24, "uuuu", u, (u32)(((i32)(U0 << 8) >> 8) * (i64)((i32)(U1 << 8) >> 8)) + U2) \
    X(v_mad_u32_u24, "uuuu", u, (u32)((u64)(U0 & 0xffffff) * (U1 & 0xffffff)) + U2) \
    X(v_bfe_u32, "uuuu", u, field(U0, U1, U2)) \
    X(v_bfe_i32, "uuuu", u, signed_field(U0, U1, U2)) \
    X(v_bfi_b32, "uuuu", u, (U0 & U1) | (~U0 & U2)) \
    X(v_fma_f32, "ffff", f, fmaf(F0, F1, F2)) \
    X(v_fmamk_f32, "ffff", f, fmaf(F0, F1, F2)) \
    X(v_fmaak_f32, "ffff", f, fmaf(F0, F1, F2)) \
    X(v_fma_f64, "dddd", d, fma(D0, D1, D2)) \
    X(v_alignbit_b32, "uuuu", u, (u32)(((u64)U0 << 32 | U1) >> (U2 & 31))) \
    X(v_alignbyte_b32, "uuuu", u, (u32)(((u64)U0 << 32 | U1) >> 8 * (U2 & 3))) \
    X(v_min3_f32, "ffff", f, min_f(min_f(F0, F1), F2)) \
    X(v_max3_f32, "ffff", f, max_f(max_f(F0, F1), F2)) \
    X(v_med3_f32, "ffff", f, med3_f(F0, F1, F2)) \
    X(v_min3_i32, "uuuu", i, (i32)min_i(min_i(I0, I1), I2)) \
    X(v_max3_i32, "uuuu", i, (i32)max_i(max_i(I0, I1), I2)) \
    X(v_med3_i32, "uuuu", i, (i32)med3_i(I0, I1, I2)) \
    X(v_min3_u32, "uuuu", u, (u32)min_i(min_i(U0, U1), U2)) \
    X(v_max3_u32, "uuuu", u, (u32)max_i(max_i(U0, U1), U2)) \
    X(v_med3_u32, "uuuu", u, (u32)med3_i(U0, U1, U2)) \
    X(v_min3_f16, "Hhhh", u, half_bits(min_f(min_f(H0, H1), H2))) \
    X(v_max3_f16, "Hhhh", u, half_bits(max_f(max_f(H0, H1), H2))) \
    X(v_med3_f16, "Hhhh", u, half_bits(med3_f(H0, H1, H2))) \
    X(v_min3_i16, "Kkkk", u, (uint16_t)min_i(min_i(J0, J1), J2)) \
    X(v_max3_i16, "Kkkk", u, (uint16_t)max_i(max_i(J0, J1), J2)) \
    X(v_med3_i16, "Kkkk", u, (uint16_t)med3_i(J0, J1, J2)) \
    X(v_min3_u16, "Kkkk", u, (uint16_t)min_i(min_i(K0, K1), K2)) \
    X(v_max3_u16, "Kkkk", u, (uint16_t)max_i(max_i(K0, K1), K2)) \
    X(v_med3_u16, "Kkkk", u, (uint16_t)med3_i(K0, K1, K2)) \
    X(v_sad_u8, "uuuu", u, sad_u8(U0, U1) + U2) \
    X(v_sad_u32, "uuuu", u, (U0 > U1 ? U0 - U1 : U1 - U0) + U2) \
    X(v_div_fixup_f32, "ffff", f, div_fixup(F0, F1, F2)) \
    X(v_div_fixup_f64, "dddd", d, div_fixup64(D0, D1, D2)) \
    X(v_div_fixup_f16, "Hhhh", u, half_bits(div_fixup(H0, H1, H2))) \
    X(v_div_fmas_f32, "ffff", f, VCC_LANE ? (float)ldexp(fma(F0, F1, F2), exponent(F2) > 127 ? 64 : -64) : fmaf(F0, F1, F2)) \
    X(v_div_fmas_f64, "dddd", d, VCC_LANE ? (double)ldexpl(fmal(D0, D1, D2), exponent64(D2) > 1023 ? 128 : -128) : fma(D0, D1, D2)) \
    X(v_perm_b32, "uuuu", u, perm(U0, U1, U2)) \
    X(v_mad_u32_u16, "ukku", u, (u32)K0 * K1 + U2) \
    X(v_mad_i32_i16, "ukku", u, (u32)((i32)J0 * J1) + U2) \
    X(v_xad_u32, "uuuu", u, (U0 ^ U1) + U2) \
    X(v_lshl_add_u32, "uuuu", u, (U0 << (U1 & 31)) + U2) \
    X(v_add_lshl_u32, "uuuu", u, (U0 + U1) << (U2 & 31)) \
    X(v_add3_u32, "uuuu", u, U0 + U1 + U2) \
    X(v_lshl_or_b32, "uuuu", u, (U0 << (U1 & 31)) | U2) \
    X(v_and_or_b32, "uuuu", u, (U0 & U1) | U2) \
    X(v_or3_b32, "uuuu", u, U0 | U1 | U2) \
    X(v_mad_f16, "Hhhh", u, half_bits(half(half_bits(H0 * H1)) + H2)) \
    X(v_mad_legacy_f16, "hhhh", u, half_bits(half(half_bits(H0 * H1)) + H2)) \
    X(v_mad_u16, "Kkkk", u, (uint16_t)((u32)K0 * K1 + K2)) \
    X(v_mad_i16, "Kkkk", u, (uint16_t)((u32)K0 * K1 + K2)) \
    X(v_mad_legacy_u16, "kkkk", u, (uint16_t)((u32)K0 * K1 + K2)) \
    X(v_mad_legacy_i16, "kkkk", u, (uint16_t)((u32)K0 * K1 + K2)) \
    X(v_fma_f16, "Hhhh", u, fma_half(U0, U1, U2)) \
    X(v_fma_legacy_f16, "hhhh", u, fma_half(U0, U1, U2)) \
    X(v_lshl_add_u64, "qquq", q, (Q0 << (U1 & 7)) + Q2) \
    X(v_add_f64, "ddd", d, D0 + D1) \
    X(v_mul_f64, "ddd", d, D0 * D1) \
    X(v_min_f64, "ddd", d, min_d(D0, D1)) \
    X(v_max_f64, "ddd", d, max_d(D0, D1)) \
    X(v_ldexp_f64, "ddu", d, ldexp(D0, I1)) \
    X(v_ldexp_f32, "ffu", f, ldexpf(F0, I1)) \
    X(v_mul_lo_u32, "uuu", u, U0 * U1) \
    X(v_mul_hi_u32, "uuu", u, (u32)((u64)U0 * U1 >> 32)) \
    X(v_mul_hi_i32, "uuu", u, (u32)((i64)I0 * I1 >> 32)) \
    X(v_bcnt_u32_b32, "uuu", u, (u32)__builtin_popcount(U0) + U1) \
    X(v_mbcnt_lo_u32_b32, "uuu", u, (u32)__builtin_popcount(U0 & (u32)BELOW) + U1) \
    X(v_mbcnt_hi_u32_b32, "uuu", u, (u32)__builtin_popcount(U0 & (u32)(BELOW >> 32)) + U1) \
    X(v_lshlrev_b64, "quq", q, Q1 << (U0 & 63)) \
    X(v_lshrrev_b64, "quq", q, Q1 >> (U0 & 63)) \
    X(v_ashrrev_i64, "quq", l, L1 >> (U0 & 63)) \
    X(v_bfm_b32, "uuu", u, ((1u << (U0 & 31)) - 1) << (U1 & 31)) \
    X(v_pack_b32_f16, "uhh", u, LO(U0) | LO(U1) << 16) \
    X(v_pk_mul_lo_u16, "PPP", u, HALVES(op_mul16)) \
    X(v_pk_add_i16, "PPP", u, HALVES(op_add16)) \
    X(v_pk_sub_i16, "PPP", u, HALVES(op_sub16)) \
    X(v_pk_add_u16, "PPP", u, HALVES(op_add16)) \
    X(v_pk_sub_u16, "PPP", u, HALVES(op_sub16)) \
    X(v_pk_lshlrev_b16, "PPP", u, HALVES(op_shl16)) \
    X(v_pk_lshrrev_b16, "PPP", u, HALVES(op_shr16)) \
    X(v_pk_ashrrev_i16, "PPP", u, HALVES(op_ashr16)) \
    X(v_pk_max_i16, "PPP", u, HALVES(op_maxi16)) \
    X(v_pk_min_i16, "PPP", u, HALVES(op_mini16)) \
    X(v_pk_max_u16, "PPP", u, HALVES(op_maxu16)) \
    X(v_pk_min_u16, "PPP", u, HALVES(op_minu16)) \
    X(v_pk_mad_i16, "PPPP", u, (uint16_t)(LO(U0) * LO(U1) + LO(U2)) | (HI(U0) * HI(U1) + HI(U2)) << 16) \
    X(v_pk_mad_u16, "PPPP", u, (uint16_t)(LO(U0) * LO(U1) + LO(U2)) | (HI(U0) * HI(U1) + HI(U2)) << 16) \
    X(v_pk_fma_f16, "pppp", u, fma_half(LO(U0), LO(U1), LO(U2)) | (u32)fma_half(HI(U0), HI(U1), HI(U2)) << 16) \
    X(v_pk_add_f16, "ppp", u, HALVES(op_addf16)) \
    X(v_pk_mul_f16, "ppp", u, HALVES(op_mulf16)) \
    X(v_pk_min_f16, "ppp", u, HALVES(op_minf16)) \
    X(v_pk_max_f16, "ppp", u, HALVES(op_maxf16)) \
    X(v_dot2_f32_f16, "fppf", f, fmaf(half(HI(U0)), half(HI(U1)), fmaf(half(LO(U0)), half(LO(U1)), F2))) \
    X(v_dot2_f32_bf16, "fppf", f, dot2_bf16(U0, U1, F2)) \
    X(v_dot2c_f32_bf16, "fuuo", f, dot2_bf16(U0, U1, F2)) \
    X(v_prng_b32, "uu", u, U0 << 1 ^ (U0 >> 31 ? 0xc5u : 0)) \
    X(v_bitop3_b32, "Cuuu", u, bitop3(a->i, U0, U1, U2)) \
    X(v_bitop3_b16, "Ckkk", u, (uint16_t)bitop3(a->i, U0, U1, U2)) \
    X(v_minimum3_f32, "ffff", f, F0 != F0 || F1 != F1 || F2 != F2 ? NAN : min_f(min_f(F0, F1), F2)) \
    X(v_maximum3_f32, "ffff", f, F0 != F0 || F1 != F1 || F2 != F2 ? NAN : max_f(max_f(F0, F1), F2)) \
    X(v_dot2_i32_i16, "uPPu", u, dot2_i16(U0, U1) + U2) \
    X(v_dot2_u32_u16, "uPPu", u, LO(U0) * LO(U1) + HI(U0) * HI(U1) + U2) \
    X(v_dot4_i32_i8, "uuuu", u, dot4_i8(U0, U1) + U2) \
    X(v_dot4_u32_u8, "uuuu", u, dot4_u8(U0, U1) + U2) \
    X(v_pk_mov_b32, "qFF", q, (u32)Q0 | Q1 << 32)


#define X(name, types, where, expression) static void x_##name(Args* a) { EACH a->d.where[n] = (expression); }
VECTOR(X)
#undef X

static void x_v_pk_fma_f32(Args* a) { EACH { FLOATS(fmaf(x, y, z)); } }
static void x_v_pk_mul_f32(Args* a) { EACH { FLOATS(x * y); } }
static void x_v_pk_add_f32(Args* a) { EACH { FLOATS(x + y); } }

/* With a carry, or another mask. */
#define BIT(what) do { if (what) a->bits |= 1ull << n; } while (0)
static void x_v_cndmask_b32(Args* a) { EACH a->d.u[n] = M2 ? U1 : U0; }
static void x_v_add_co_u32(Args* a) { EACH { const u64 x = (u64)U0 + U1; a->d.u[n] = (u32)x; BIT(x >> 32); } }
static void x_v_sub_co_u32(Args* a) { EACH { const u64 x = (u64)U0 - U1; a->d.u[n] = (u32)x; BIT(x >> 32 & 1); } }
static void x_v_subrev_co_u32(Args* a) { EACH { const u64 x = (u64)U1 - U0; a->d.u[n] = (u32)x; BIT(x >> 32 & 1); } }
static void x_v_addc_co_u32(Args* a) { EACH { const u64 x = (u64)U0 + U1 + M2; a->d.u[n] = (u32)x; BIT(x >> 32); } }
static void x_v_subb_co_u32(Args* a) { EACH { const u64 x = (u64)U0 - U1 - M2; a->d.u[n] = (u32)x; BIT(x >> 32 & 1); } }
static void x_v_subbrev_co_u32(Args* a) { EACH { const u64 x = (u64)U1 - U0 - M2; a->d.u[n] = (u32)x; BIT(x >> 32 & 1); } }
static void x_v_mad_u64_u32(Args* a) { EACH { const u64 p = (u64)U0 * U1, x = p + Q2; a->d.q[n] = x; BIT(x < p); } }
static void x_v_mad_i64_i32(Args* a) {
    EACH { i64 x; BIT(__builtin_add_overflow((i64)I0 * I1, (i64)Q2, &x)); a->d.q[n] = (u64)x; }
}
static void x_v_div_scale_f32(Args* a) { EACH { int flag; a->d.f[n] = div_scale(F0, F1, F2, &flag); BIT(flag); } }
static void x_v_div_scale_f64(Args* a) { EACH { int flag; a->d.d[n] = div_scale64(D0, D1, D2, &flag); BIT(flag); } }

/* Each source fp16 or, without its bit of op_sel_hi, fp32; neg_hi takes absolute values. */
static float mixed(const Args* a, int k, int n) {
    const Inst* i = a->i;
    u32 x = ((const u32*)a->s[k])[n];
    float f = i->op_sel_hi >> k & 1 ? half(i->op_sel >> k & 1 ? x >> 16 : x) : from_bits(x);
    if (i->neg_hi >> k & 1) f = fabsf(f);
    return i->neg >> k & 1 ? -f : f;
}
static float mix(const Args* a, int n) { return fmaf(mixed(a, 0, n), mixed(a, 1, n), mixed(a, 2, n)); }
static void x_v_fma_mix_f32(Args* a) { EACH a->d.f[n] = mix(a, n); }
static void x_v_fma_mixlo_f16(Args* a) { EACH a->d.u[n] = half_bits(mix(a, n)); }

static void run_mixhi(State* t, const Inst* i) {
    Args a;
    Vec room[3];
    a.t = t, a.i = i, a.exec = exec_of(t);
    for (int k = 0; k < 3; ++k) {
        fetch(t, i, &a, k, 'u', &room[k]);
        if (i->src[k] >= 240 && i->src[k] <= 248 && i->op_sel_hi >> k & 1) not_emulated(t);
    }
    u32* to = &t->vgpr[i->dst * LANES];
    EACH if (a.exec >> n & 1) {
        const float x = mix(&a, n), y = i->clamp ? finished(x, i) : x;
        to[n] = (to[n] & 0xffff) | (u32)half_bits(y) << 16;
    }
}

static const Op OPS[] = {
#define X(name, types, where, expression) VECTOR_OP(name, types),
    VECTOR(X)
#undef X
    VECTOR_OP(v_pk_fma_f32, "FFFF"), VECTOR_OP(v_pk_mul_f32, "FFF"), VECTOR_OP(v_pk_add_f32, "FFF"),
    VECTOR_OP(v_fma_mix_f32, "fuuu"), VECTOR_OP(v_fma_mixlo_f16, "Huuu"), VECTOR_OP(v_cndmask_b32, "uffm"),
    {"v_fma_mixhi_f16", run_mixhi, 0, "", 0, 0},
#define CARRY_OP(name, types) {#name, run_vector, FUNCTION(name), types, 0, 1}
    CARRY_OP(v_add_co_u32, "uuu"), CARRY_OP(v_sub_co_u32, "uuu"), CARRY_OP(v_subrev_co_u32, "uuu"),
    CARRY_OP(v_addc_co_u32, "uuum"), CARRY_OP(v_subb_co_u32, "uuum"), CARRY_OP(v_subbrev_co_u32, "uuum"),
    CARRY_OP(v_mad_u64_u32, "quuq"), CARRY_OP(v_mad_i64_i32, "quuq"), CARRY_OP(v_div_scale_f32, "ffff"),
    CARRY_OP(v_div_scale_f64, "dddd"),
#undef CARRY_OP
};
const Op* vector_op(const char* name) {
    const Op* op = op_in(OPS, sizeof OPS / sizeof *OPS, name);
    if (!op) op = compare_op(name);
    return op ? op : convert_op(name);
}
