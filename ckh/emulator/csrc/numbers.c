/* Formats of numbers, as AMD's instruction set manuals of MI300 and MI350 define them. */
#include "numbers.h"

typedef struct { int mantissa, bias, is_fnuz, has_nan, has_infinity; u32 most; } Format;

static Format format_of(Small format) {
    switch (format) {
        case FP8: return emu_fnuz ? (Format){3, 8, 1, 1, 0, 0x7f} : (Format){3, 7, 0, 1, 0, 0x7e};
        case BF8: return emu_fnuz ? (Format){2, 16, 1, 1, 0, 0x7f} : (Format){2, 15, 0, 1, 1, 0x7b};
        case FP6: return (Format){3, 1, 0, 0, 0, 0x1f};
        case BF6: return (Format){2, 3, 0, 0, 0, 0x1f};
        default: return (Format){1, 1, 0, 0, 0, 0x7};
    }
}
static u32 sign_bit(Small format) { return format <= BF8 ? 0x80 : format <= BF6 ? 0x20 : 0x8; }

int emu_fnuz = 1;

float small_float(u32 bits, Small format) {
    const Format f = format_of(format);
    const u32 sign = sign_bit(format), magnitude_bits = bits & (sign - 1);
    const int biased = (int)(magnitude_bits >> f.mantissa), fraction = (int)(magnitude_bits & ((1u << f.mantissa) - 1));
    if (f.is_fnuz && (bits & 0xff) == 0x80) return NAN;
    if (f.has_infinity && magnitude_bits == f.most + 1) return bits & sign ? -INFINITY : INFINITY;
    if (f.has_nan && !f.is_fnuz && magnitude_bits > f.most) return NAN;
    const float magnitude = biased ? ldexpf((float)((1 << f.mantissa) + fraction), biased - f.bias - f.mantissa)
                                   : ldexpf((float)fraction, 1 - f.bias - f.mantissa);
    return bits & sign ? -magnitude : magnitude;
}

/* The nearest such number, ties to even; what is too large becomes infinite, else NaN, else the largest. */
u32 small_bits(float x, Small format) {
    const Format f = format_of(format);
    const u32 sign = to_bits(x) >> 31 ? sign_bit(format) : 0, nan = f.is_fnuz ? 0x80 : sign | (sign_bit(format) - 1);
    if (x != x) return f.has_nan ? nan : f.most;
    const float magnitude = fabsf(x), most = small_float(f.most, format);
    const float step = most - small_float(f.most - 1, format);
    if (magnitude >= most + step / 2) return f.has_infinity ? sign | (f.most + 1) : f.has_nan ? nan : sign | f.most;
    u32 low = 0, high = f.most; /* the last whose magnitude is no larger: positive numbers are in the order of their bits */
    while (low < high) {
        const u32 middle = (low + high + 1) / 2;
        if (small_float(middle, format) <= magnitude) low = middle;
        else high = middle - 1;
    }
    if (low < f.most) {
        const float below = magnitude - small_float(low, format), above = small_float(low + 1, format) - magnitude;
        low += above < below || (above == below && low & 1);
    }
    return f.is_fnuz && !low ? 0 : sign | low;
}

u32 reverse(u32 x) {
    x = x >> 16 | x << 16;
    x = (x & 0xff00ff00u) >> 8 | (x & 0x00ff00ffu) << 8;
    x = (x & 0xf0f0f0f0u) >> 4 | (x & 0x0f0f0f0fu) << 4;
    x = (x & 0xccccccccu) >> 2 | (x & 0x33333333u) << 2;
    return (x & 0xaaaaaaaau) >> 1 | (x & 0x55555555u) << 1;
}

static int signals(float x) { return x != x && !(to_bits(x) >> 22 & 1); }
static int signals64(double x) { return x != x && !(to_bits64(x) >> 51 & 1); }
static float nan_or(float a, float b) {
    if (signals(a)) return from_bits(to_bits(a) | 1u << 22);
    if (signals(b)) return from_bits(to_bits(b) | 1u << 22);
    return a != a ? b : a;
}
static double nan_or64(double a, double b) {
    if (signals64(a)) return from_bits64(to_bits64(a) | 1ull << 51);
    if (signals64(b)) return from_bits64(to_bits64(b) | 1ull << 51);
    return a != a ? b : a;
}
float min_f(float a, float b) { return a < b ? a : b < a ? b : a != a || b != b ? nan_or(a, b) : to_bits(a) >> 31 ? a : b; }
float max_f(float a, float b) { return a > b ? a : b > a ? b : a != a || b != b ? nan_or(a, b) : to_bits(a) >> 31 ? b : a; }
double min_d(double a, double b) { return a < b ? a : b < a ? b : a != a || b != b ? nan_or64(a, b) : to_bits64(a) >> 63 ? a : b; }
double max_d(double a, double b) { return a > b ? a : b > a ? b : a != a || b != b ? nan_or64(a, b) : to_bits64(a) >> 63 ? b : a; }
float med3_f(float a, float b, float c) {
    if (a != a || b != b || c != c) return min_f(min_f(a, b), c);
    const float most = max_f(max_f(a, b), c);
    return most == a ? max_f(b, c) : most == b ? max_f(a, c) : max_f(a, b);
}

/* Towards zero. */
uint16_t half_towards_zero(float f) {
    uint16_t b = half_bits(f);
    if (f == f && fabsf(half(b)) > fabsf(f)) --b;
    return b;
}

/* Rounded once: what the sum in double lacks decides its last bit first. */
uint16_t fma_half(u32 a, u32 b, u32 c) {
    const double p = (double)half(a) * half(b), x = half(c), s = p + x;
    if (s != s || isinf(s)) return half_bits((float)s);
    const double t = s - p, lost = (p - (s - t)) + (x - t);
    u64 bits = to_bits64(s);
    if (lost != 0 && !(bits & 1)) bits += (lost > 0) == (s > 0) ? 1 : -1ull;
    _Float16 r = (_Float16)from_bits64(bits);
    uint16_t out;
    memcpy(&out, &r, 2);
    return out;
}

/* Classes: signalling and quiet NaN, -inf, -normal, -subnormal, -0, +0, +subnormal, +normal, +inf. */
static u32 class_bit(int sign, int exponent, int most, u64 mantissa, int quiet) {
    if (exponent == most) return mantissa ? (quiet ? 2 : 1) : sign ? 4 : 512;
    if (exponent) return sign ? 8 : 256;
    return mantissa ? (sign ? 16 : 128) : sign ? 32 : 64;
}
u32 class32(u32 b) { return class_bit((int)(b >> 31), (int)(b >> 23 & 0xff), 0xff, b & 0x7fffff, b >> 22 & 1); }
u32 class16(u32 b) { return class_bit((int)(b >> 15 & 1), (int)(b >> 10 & 0x1f), 0x1f, b & 0x3ff, b >> 9 & 1); }
u32 class64(u64 b) { return class_bit((int)(b >> 63), (int)(b >> 52 & 0x7ff), 0x7ff, b & 0xfffffffffffffull, b >> 51 & 1); }

/* Numerator or denominator, as s0 is, scaled so that a reciprocal and a quotient can be had of them. AMD's text scales the
   denominator up where both of these would be too small; only down does their division come out right. */
float div_scale(float s0, float den, float num, int* flag) {
    *flag = 0;
    if (num == 0 || den == 0) return NAN;
    const int tiny = fabs((double)num / den) < 0x1p-126, tiny_reciprocal = fabs(1.0 / den) < 0x1p-126;
    if (exponent(num) - exponent(den) >= 96) { *flag = 1; return s0 == den ? ldexpf(s0, 64) : s0; }
    if (is_denormal(den)) return ldexpf(s0, 64);
    if (tiny && tiny_reciprocal) { *flag = 1; return s0 == den ? ldexpf(s0, -64) : s0; }
    if (tiny_reciprocal) return ldexpf(s0, -64);
    if (tiny) { *flag = 1; return s0 == num ? ldexpf(s0, 64) : s0; }
    return exponent(num) <= 23 ? ldexpf(s0, 64) : s0;
}
double div_scale64(double s0, double den, double num, int* flag) {
    *flag = 0;
    if (num == 0 || den == 0) return NAN;
    const int tiny = fabsl((long double)num / den) < 0x1p-1022L, tiny_reciprocal = fabsl(1.0L / den) < 0x1p-1022L;
    if (exponent64(num) - exponent64(den) >= 768) { *flag = 1; return s0 == den ? ldexp(s0, 128) : s0; }
    if (is_denormal64(den)) return ldexp(s0, 128);
    if (tiny && tiny_reciprocal) { *flag = 1; return s0 == den ? ldexp(s0, -128) : s0; }
    if (tiny_reciprocal) return ldexp(s0, -128);
    if (tiny) { *flag = 1; return s0 == num ? ldexp(s0, 128) : s0; }
    return exponent64(num) <= 53 ? ldexp(s0, 128) : s0;
}
float div_fixup(float q, float den, float num) {
    const int sign = (to_bits(den) ^ to_bits(num)) >> 31;
    if (num != num) return from_bits(to_bits(num) | 0x400000);
    if (den != den) return from_bits(to_bits(den) | 0x400000);
    if ((den == 0 && num == 0) || (isinf(den) && isinf(num))) return from_bits(0xffc00000u);
    if (den == 0 || isinf(num)) return sign ? -INFINITY : INFINITY;
    if (isinf(den) || num == 0) return sign ? -0.0f : 0.0f;
    if (q != q) return sign ? -INFINITY : INFINITY; /* too large in between */
    return sign ? -fabsf(q) : fabsf(q);
}
double div_fixup64(double q, double den, double num) {
    const int sign = (int)((to_bits64(den) ^ to_bits64(num)) >> 63);
    if (num != num) return from_bits64(to_bits64(num) | 1ull << 51);
    if (den != den) return from_bits64(to_bits64(den) | 1ull << 51);
    if ((den == 0 && num == 0) || (isinf(den) && isinf(num))) return from_bits64(0xfff8000000000000ull);
    if (den == 0 || isinf(num)) return sign ? -INFINITY : INFINITY;
    if (isinf(den) || num == 0) return sign ? -0.0 : 0.0;
    if (q != q) return sign ? -INFINITY : INFINITY;
    return sign ? -fabs(q) : fabs(q);
}

/* The fraction of a turn, for which sin and cos are defined. */
float turn_sin(float x) { return isinf(x) ? NAN : (float)sin(2 * M_PI * ((double)x - floor((double)x))); }
float turn_cos(float x) { return isinf(x) ? NAN : (float)cos(2 * M_PI * ((double)x - floor((double)x))); }
float fract(float x) { const float y = x - floorf(x); return isinf(x) ? NAN : y < 1 ? y : 0x1.fffffep-1f; }
double fract64(double x) { const double y = x - floor(x); return isinf(x) ? NAN : y < 1 ? y : 0x1.fffffffffffffp-1; }
int frexp_exponent(double x) { int e = 0; if (x == x && !isinf(x) && x != 0) frexp(x, &e); return e; }
double frexp_mantissa(double x) { int e; return x == x && !isinf(x) ? frexp(x, &e) : x; }

