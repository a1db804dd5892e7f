/* Formats of numbers: conversions, rounding, and the comparisons that treat NaN and zero as the hardware does. */
#pragma once
#include <math.h>

#include "emulator.h"

static inline float from_bits(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
static inline u32 to_bits(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
static inline double from_bits64(u64 bits) { double d; memcpy(&d, &bits, 8); return d; }
static inline u64 to_bits64(double d) { u64 q; memcpy(&q, &d, 8); return q; }

static inline float half(u32 bits) { const uint16_t low = (uint16_t)bits; _Float16 h; memcpy(&h, &low, 2); return (float)h; }
static inline uint16_t half_bits(float f) { const _Float16 h = (_Float16)f; uint16_t b; memcpy(&b, &h, 2); return b; }
static inline float bfloat(u32 bits) { return from_bits(bits << 16); }
/* To nearest, ties to even. */
static inline uint16_t bfloat_bits(float f) {
    const u32 b = to_bits(f);
    return (uint16_t)(f != f ? b >> 16 | 0x40 : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/* Floating-point numbers of 8 bits or fewer. FP8 and BF8 follow the architecture: "fnuz" on gfx942, OCP's on gfx950. */
typedef enum { FP8, BF8, FP6, BF6, FP4 } Small;
extern int emu_fnuz;
float small_float(u32 bits, Small format);
u32 small_bits(float f, Small format);

static inline int exponent(float f) { return (int)(to_bits(f) >> 23 & 0xff); }
static inline int exponent64(double d) { return (int)(to_bits64(d) >> 52 & 0x7ff); }
static inline int is_denormal(float f) { return !exponent(f) && f != 0; }
static inline int is_denormal64(double d) { return !exponent64(d) && d != 0; }

static inline u32 clz(u32 x) { return x ? (u32)__builtin_clz(x) : 0xffffffffu; }
static inline u32 ctz(u32 x) { return x ? (u32)__builtin_ctz(x) : 0xffffffffu; }
u32 reverse(u32 x);
static inline u64 reverse64(u64 x) { return (u64)reverse((u32)x) << 32 | reverse((u32)(x >> 32)); }

/* A signalling NaN comes out quiet, a quiet one loses to a number; -0 is less than +0. */
float min_f(float a, float b);
float max_f(float a, float b);
float med3_f(float a, float b, float c);
double min_d(double a, double b);
double max_d(double a, double b);
static inline i64 min_i(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 max_i(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 med3_i(i64 a, i64 b, i64 c) { return max_i(min_i(a, b), min_i(max_i(a, b), c)); }

/* To integers, towards zero; NaN is 0, and what is too large the largest there is. */
static inline u32 to_u32(double x) { return !(x > 0) ? 0 : x >= 4294967295.0 ? 0xffffffffu : (u32)x; }
static inline u32 to_i32(double x) {
    return x != x ? 0 : x <= -2147483648.0 ? 0x80000000u : x >= 2147483647.0 ? 0x7fffffffu : (u32)(i32)x;
}
static inline uint16_t to_u16(float x) { return !(x > 0) ? 0 : x >= 65535.0f ? 0xffff : (uint16_t)x; }
static inline uint16_t to_i16(float x) {
    return x != x ? 0 : x <= -32768.0f ? 0x8000 : x >= 32767.0f ? 0x7fff : (uint16_t)(int16_t)x;
}
static inline u32 saturated(i64 x, i64 least, i64 most) { return (u32)(x < least ? least : x > most ? most : x); }

uint16_t half_towards_zero(float f);
uint16_t fma_half(u32 a, u32 b, u32 c);
u32 class32(u32 bits);
u32 class16(u32 bits);
u32 class64(u64 bits);

/* The parts of a division: see numbers.c. */
float div_scale(float s0, float denominator, float numerator, int* flag);
double div_scale64(double s0, double denominator, double numerator, int* flag);
float div_fixup(float quotient, float denominator, float numerator);
double div_fixup64(double quotient, double denominator, double numerator);

/* sin and cos of a number of turns; the fraction, below 1; exponent and mantissa, which is from 0.5 to 1. */
float turn_sin(float x);
float turn_cos(float x);
float fract(float x);
double fract64(double x);
int frexp_exponent(double x);
double frexp_mantissa(double x);
