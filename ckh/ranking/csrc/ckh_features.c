/* Computes what problems enter of the features: runs a program that ckh/ranking/program.py has assembled from formulas.

   A program is a list of steps over the registers of a problem, which are doubles; truths are 0 and 1, and whole
   numbers are exact. A step is STEP integers: an operation, how many values it computes, the register of the first of
   them, three operands, as bits which of these have as many values, and one integer that means nothing. An operand is
   the register or, if negative, ~ the constant where its values begin; one whose bit is not set is a single number.

   Values must be NumPy's to the last bit: compile without fused multiply-add. */
#include "ckh_numbers.h"
#include "ckh_rank.h"

enum { OPERATION = 0, WIDTH = 1, TO = 2, OPERANDS = 3, ARE_WIDE = 6, STEP = 8 };

/* NumPy's operations on numbers; ckh/ranking/recording.py lists them in this order. */
enum { COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, MAXIMUM, MINIMUM, LESS, LESS_EQUAL, GREATER };
enum { GREATER_EQUAL = GREATER + 1, EQUAL, NOT_EQUAL, AND, OR, NOT, NEGATIVE, CEIL, FLOOR, ABSOLUTE, IS_NAN, WHERE };
enum { TRUNCATE = WHERE + 1, WHOLE_AND };

#define EACH(expression)               \
  for (int32_t i = 0; i < n; i++) {    \
    const double x = a[i * in_a];      \
    to[i] = (expression);              \
  }                                    \
  break
#define EACH_OF_TWO(expression)                       \
  for (int32_t i = 0; i < n; i++) {                   \
    const double x = a[i * in_a], y = b[i * in_b];    \
    to[i] = (expression);                             \
  }                                                   \
  break

static void compute(const int32_t *step, double *to, const double *a, const double *b, const double *c) {
  const int32_t n = step[WIDTH], wide = step[ARE_WIDE], in_a = wide & 1, in_b = wide >> 1 & 1, in_c = wide >> 2 & 1;
  switch (step[OPERATION]) {
    case COPY: EACH(x);
    case ADD: EACH_OF_TWO(x + y);
    case SUBTRACT: EACH_OF_TWO(x - y);
    case MULTIPLY: EACH_OF_TWO(x * y);
    case DIVIDE: EACH_OF_TWO(x / y);
    case FLOOR_DIVIDE: EACH_OF_TWO(ckh_floor_divide(x, y));
    case REMAINDER: EACH_OF_TWO(ckh_remainder(x, y));
    case MAXIMUM: EACH_OF_TWO(ckh_maximum(x, y));
    case MINIMUM: EACH_OF_TWO(ckh_minimum(x, y));
    case LESS: EACH_OF_TWO(x < y);
    case LESS_EQUAL: EACH_OF_TWO(x <= y);
    case GREATER: EACH_OF_TWO(x > y);
    case GREATER_EQUAL: EACH_OF_TWO(x >= y);
    case EQUAL: EACH_OF_TWO(x == y);
    case NOT_EQUAL: EACH_OF_TWO(x != y);
    case AND: EACH_OF_TWO(x != 0 && y != 0);
    case OR: EACH_OF_TWO(x != 0 || y != 0);
    case NOT: EACH(x == 0);
    case NEGATIVE: EACH(-x);
    case CEIL: EACH(ceil(x));
    case FLOOR: EACH(floor(x));
    case ABSOLUTE: EACH(fabs(x));
    case IS_NAN: EACH(isnan(x) != 0);
    case WHERE:
      for (int32_t i = 0; i < n; i++) to[i] = a[i * in_a] != 0 ? b[i * in_b] : c[i * in_c];
      break;
    case TRUNCATE: EACH((double)ckh_integer(x));
    case WHOLE_AND: EACH_OF_TWO((double)(ckh_integer(x) & ckh_integer(y)));
    default: break;
  }
}

void ckh_rank_compute(int64_t problems, int64_t size, double *registers, const double *constants, const int32_t *code,
                      int64_t steps) {
  for (int64_t p = 0; p < problems; p++, registers += size) {
    for (int64_t i = 0; i < steps; i++) {
      const int32_t *step = code + STEP * i, *operand = step + OPERANDS;
      const double *of[3];
      for (int k = 0; k < 3; k++) of[k] = operand[k] < 0 ? constants + ~operand[k] : registers + operand[k];
      compute(step, registers + step[TO], of[0], of[1], of[2]);
    }
  }
}
