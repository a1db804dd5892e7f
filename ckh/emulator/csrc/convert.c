/* Vector conversions between formats of numbers. */
#include "operands.h"

static u64 small_pair(u32 x, Small format) {
    return to_bits(small_float(x & 0xff, format)) | (u64)to_bits(small_float(x >> 8 & 0xff, format)) << 32;
}
static int16_t norm_i16(float x) { return x != x ? 0 : (int16_t)nearbyintf(max_f(min_f(x, 1), -1) * 32767.0f); }
static uint16_t norm_u16(float x) { return x != x ? 0 : (uint16_t)nearbyintf(max_f(min_f(x, 1), 0) * 65535.0f); }

/* name, types, where the result goes in d, expression */
#define CONVERSIONS(X) \
    X(v_cvt_i32_f64, "ud", u, to_i32(D0)) \
    X(v_cvt_f64_i32, "du", d, I0) \
    X(v_cvt_f32_i32, "fu", f, (float)I0) \
    X(v_cvt_f32_u32, "fu", f, (float)U0) \
    X(v_cvt_u32_f32, "uf", u, to_u32(F0)) \
    X(v_cvt_i32_f32, "uf", u, to_i32(F0)) \
    X(v_cvt_f16_f32, "hf", u, half_bits(F0)) \
    X(v_cvt_f32_f16, "fh", f, H0) \
    X(v_cvt_rpi_i32_f32, "uf", u, to_i32(floor((double)F0 + 0.5))) \
    X(v_cvt_flr_i32_f32, "uf", u, to_i32(floor((double)F0))) \
    X(v_cvt_off_f32_i4, "fu", f, (float)((i32)(U0 << 28) >> 28) / 16) \
    X(v_cvt_f32_f64, "fd", f, (float)D0) \
    X(v_cvt_f64_f32, "df", d, (double)F0) \
    X(v_cvt_f32_ubyte0, "fu", f, (float)(U0 & 0xff)) \
    X(v_cvt_f32_ubyte1, "fu", f, (float)(U0 >> 8 & 0xff)) \
    X(v_cvt_f32_ubyte2, "fu", f, (float)(U0 >> 16 & 0xff)) \
    X(v_cvt_f32_ubyte3, "fu", f, (float)(U0 >> 24)) \
    X(v_cvt_u32_f64, "ud", u, to_u32(D0)) \
    X(v_cvt_f64_u32, "du", d, U0) \
    X(v_cvt_f16_u16, "hk", u, half_bits((float)K0)) \
    X(v_cvt_f16_i16, "hk", u, half_bits((float)J0)) \
    X(v_cvt_u16_f16, "kh", u, to_u16(H0)) \
    X(v_cvt_i16_f16, "kh", u, to_i16(H0)) \
    X(v_sat_pk_u8_i16, "uu", u, saturated((int16_t)LO(U0), 0, 255) | saturated((int16_t)HI(U0), 0, 255) << 8) \
    X(v_cvt_f32_fp8, "fu", f, small_float(U0 & 0xff, FP8)) \
    X(v_cvt_f32_bf8, "fu", f, small_float(U0 & 0xff, BF8)) \
    X(v_cvt_pk_f32_fp8, "qu", q, small_pair(U0, FP8)) \
    X(v_cvt_pk_f32_bf8, "qu", q, small_pair(U0, BF8)) \
    X(v_cvt_pkrtz_f16_f32, "uff", u, half_towards_zero(F0) | (u32)half_towards_zero(F1) << 16) \
    X(v_cvt_pknorm_i16_f32, "uff", u, (uint16_t)norm_i16(F0) | (u32)(uint16_t)norm_i16(F1) << 16) \
    X(v_cvt_pknorm_u16_f32, "uff", u, norm_u16(F0) | (u32)norm_u16(F1) << 16) \
    X(v_cvt_f32_bf16, "fk", f, bfloat(K0)) \
    X(v_cvt_pk_f16_f32, "uff", u, half_bits(F0) | (u32)half_bits(F1) << 16) \
    X(v_cvt_pk_bf16_f32, "uff", u, bfloat_bits(F0) | (u32)bfloat_bits(F1) << 16) \
    X(v_ashr_pk_i8_i32, "Kuuu", u, (saturated(I0 >> (U2 & 31), -128, 127) & 0xff) | (saturated(I1 >> (U2 & 31), -128, 127) & 0xff) << 8) \
    X(v_ashr_pk_u8_i32, "Kuuu", u, saturated(I0 >> (U2 & 31), 0, 255) | saturated(I1 >> (U2 & 31), 0, 255) << 8) \
    X(v_cvt_pk_u16_u32, "uuu", u, (u32)min_i(U0, 65535) | (u32)min_i(U1, 65535) << 16) \
    X(v_cvt_pk_i16_i32, "uuu", u, (uint16_t)saturated(I0, -32768, 32767) | saturated(I1, -32768, 32767) << 16) \
    X(v_cvt_pk_fp8_f32, "Kff", u, small_bits(F0, FP8) | (u32)small_bits(F1, FP8) << 8) \
    X(v_cvt_pk_bf8_f32, "Kff", u, small_bits(F0, BF8) | (u32)small_bits(F1, BF8) << 8)

#define X(name, types, where, expression) static void x_##name(Args* a) { EACH a->d.where[n] = (expression); }
CONVERSIONS(X)
#undef X

static const Op OPS[] = {
#define X(name, types, where, expression) VECTOR_OP(name, types),
    CONVERSIONS(X)
#undef X
};
const Op* convert_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
