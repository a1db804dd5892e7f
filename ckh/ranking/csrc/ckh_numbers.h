/* Arithmetic of features in C: NumPy's on doubles, and Python's on integers as long as 64 bits hold them. */
#ifndef CKH_NUMBERS_H
#define CKH_NUMBERS_H

#include <math.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "the features need IEEE arithmetic: compile without -ffast-math"
#endif

static inline double ckh_maximum(double a, double b) { return a >= b || isnan(a) ? a : b; }
static inline double ckh_minimum(double a, double b) { return a <= b || isnan(a) ? a : b; }

/* The rest that has the divisor's sign. */
static inline double ckh_remainder(double a, double b) {
  double rest = fmod(a, b);
  if (b == 0) return rest;
  if (rest == 0) return copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

static inline double ckh_floor_divide(double a, double b) {
  double rest, whole, down;
  if (b == 0) return a / b;
  rest = fmod(a, b);
  whole = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) whole -= 1.0;
  if (whole == 0) return copysign(0.0, a / b);
  down = floor(whole);
  return whole - down > 0.5 ? down + 1.0 : down;
}

static inline int64_t ckh_integer(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }
static inline int64_t ckh_wrap(uint64_t x) { return x > INT64_MAX ? -(int64_t)~x - 1 : (int64_t)x; }

/* Integers: what does not fit sets `*overflow`, and the value means nothing. The divisor is never zero. */
static inline int64_t ckh_plus(int64_t a, int64_t b, int *overflow) {
  if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
    *overflow = 1;
    return 0;
  }
  return a + b;
}

static inline int64_t ckh_less(int64_t a, int64_t b, int *overflow) {
  if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) {
    *overflow = 1;
    return 0;
  }
  return a - b;
}

static inline int64_t ckh_times(int64_t a, int64_t b, int *overflow) {
  if (a != 0 && b != 0) {
    const uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    if (x > (uint64_t)INT64_MAX / y) {
      *overflow = 1;
      return 0;
    }
  }
  return a * b;
}

static inline int64_t ckh_over(int64_t a, int64_t b, int *overflow) {
  if (b == 0) return 0;
  if (a == INT64_MIN && b == -1) {
    *overflow = 1;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t ckh_modulo(int64_t a, int64_t b, int *overflow) {
  int64_t rest;
  (void)overflow;
  if (b == 0 || b == -1) return 0;
  rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

#endif
