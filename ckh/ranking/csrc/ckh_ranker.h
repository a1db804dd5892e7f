/* What ckh_rank.c, ckh_trees.c, ckh_tests.c and ckh_sets.c share; nobody else includes it. */
#ifndef CKH_RANKER_H
#define CKH_RANKER_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ckh_rank.h"

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline, unused))
#define INTERNAL __attribute__((visibility("hidden")))
#else
#define INLINE static inline
#define INTERNAL
#endif

enum { CONSTANT = 0, TILE = 1, VARIANT = 2, MIXED = 3 }; /* kinds of families */
enum { EMPTY = -1, NO_MEMORY = -2 };                     /* in place of a set's number */

#define ZERO_BOUND ((double)1e-35f)
enum { CATEGORICAL = 1, DEFAULT_LEFT = 2, MISSING_ZERO = 4, MISSING_NAN = 8 }; /* flags of families */

/* Rows of the forest's and the plan's tables of families. */
typedef struct {
  int32_t input, flags, first, count;
} family;
typedef struct {
  int32_t kind, source, mask, partition;
} family_values;

/* What a test does to a state, in the two lowest bits of its action. The rest is the number of its mask over places; or
   of a test that splits variants or problems: these are first tests of variants, then mixed ones, then all others. */
enum { GO_RIGHT = 0, GO_LEFT = 1, SPLIT_PLACES = 2, SPLIT_OTHERWISE = 3 };

/* A test whose masks over tiles differ by class of variants: the first class's, the step to the next one's, and the
   family, of which some classes may be merged. */
typedef struct {
  uint32_t mask, step;
  int32_t family;
} mixed_test;

/* The classes of a mixed family, less those that do as an earlier one does: the first one's place among all, and how
   many there are. */
typedef struct {
  int32_t first, count;
} merged_classes;

/* A set of variants: its size, two sets that make it up (or -1), and what all tiles got. Those of one size that got
   any value form a list: `next` is -1 at its end, and UNTOUCHED for a set that got none. */
enum { UNTOUCHED = -2 };
typedef struct {
  int32_t size, left, right, next;
  uint64_t all;
} variant_set;

/* The sets that a variant test makes of a set, by both. */
typedef struct {
  uint64_t key;
  int32_t left, right;
} split;

/* A state that was split: its left and right half, which of them is smaller, which comes first, and what that one's
   value is once it is done. */
typedef struct {
  int32_t set[2], at[2], count[2], node; /* node: of the half that comes second */
  uint8_t smaller, first, first_done;
  uint64_t value;
} frame;

/* The trees as they are walked. Trees are cells of 64 bits, depth first: a node has what is to its right (the rest is
   next to it) in the upper half, and in the lower one its test and, in the two lowest bits, whether a leaf is to its
   right and to its left. A leaf has its value. */
typedef struct {
  uint64_t *part[2]; /* with high parts and with low ones, or NULL */
  int32_t *roots;    /* of each tree, and at the end: where it begins; of a leaf, ~ that */
} laid_trees;

/* What ranks so many problems together, a power of two up to 64. A place is a tile for one of them: tile * together +
   problem. */
typedef struct {
  const ckh_rank_forest *forest;
  const ckh_rank_plan *plan;
  int32_t together, places;
  size_t place_words, variant_words, row; /* row: of sums, with what makes it a multiple of LANES */
  uint32_t *action;                       /* of each test */
  uint32_t *splitting;                    /* the same, where no problem decides */
  uint64_t *problem_masks;                /* of each test of one value for each problem */
  double *value;                          /* of each problem or place, in the family that is decided now */
  int32_t *position;                      /* of each, in that family */
  mixed_test *mixed;
  uint32_t mixed_count;
  merged_classes *merged; /* of each family */
  int32_t *merged_class;  /* the number of the class whose masks count */
  uint64_t *merged_masks; /* the variants that are in it */
  uint64_t *masks;        /* over places */
  variant_set *sets;
  uint64_t *members;
  uint64_t *sums;    /* of each set: a row by place */
  uint64_t *scratch; /* two sets of variants */
  int32_t set_count, set_room, set_limit, full; /* full: the set of all variants */
  int32_t *by_members; /* hash table of the sets */
  int32_t *touched;    /* by size: the first set that got any value */
  split *splits;       /* hash table */
  size_t members_room, splits_room, splits_count;
  const laid_trees *trees;
  const uint64_t *cells; /* those of the part that is added now */
  uint64_t *high; /* of each problem and candidate, while the low parts are added; NULL if there are none */
  frame *frames;
  uint64_t *bits; /* sets of places */
  size_t frames_room;
} ranker;

INLINE size_t start_of(const ranker *r, int32_t tree) {
  const int32_t root = r->trees->roots[tree];
  return (size_t)(root < 0 ? ~root : root);
}

/* Have a tree brought near while those before it are walked: a quarter of the time, when the forest is in no cache. */
INLINE void fetch(const ranker *r, int32_t tree) {
#if defined(__GNUC__)
  if (tree < r->forest->trees) {
    const size_t end = start_of(r, tree + 1);
    for (size_t at = start_of(r, tree); at < end; at += 8) __builtin_prefetch(r->cells + at);
  }
#else
  (void)r;
  (void)tree;
#endif
}

INLINE uint64_t leaf(const ranker *r, int32_t node) { return r->cells[(size_t)~node]; }

INLINE int32_t child(uint64_t cell, int32_t node, const int is_left) {
  const int32_t below = node + (is_left ? 1 : (int32_t)(cell >> 32));
  return below ^ -(int32_t)(cell >> is_left & 1);
}

INLINE family family_of(const ckh_rank_forest *forest, int32_t f) {
  family tests;
  memcpy(&tests, forest->family + 4 * (size_t)f, sizeof tests);
  return tests;
}

INLINE family_values values_of(const ckh_rank_plan *plan, int32_t f) {
  family_values values;
  memcpy(&values, plan->family + 4 * (size_t)f, sizeof values);
  return values;
}

/* The first of a numerical family's tests that holds; the later ones hold as well. */
INLINE int32_t position(const double *threshold, int32_t count, int32_t flags, double x) {
  int32_t low = 0;
  const int nan = isnan(x);
  if (nan && !(flags & MISSING_NAN)) x = 0;
  if ((flags & MISSING_NAN) ? nan : ((flags & MISSING_ZERO) && fabs(x) <= ZERO_BOUND))
    return flags & DEFAULT_LEFT ? 0 : count;
  while (count > 0) {
    const int32_t half = count / 2;
    if (threshold[low + half] < x) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return low;
}

/* Whether a categorical test holds. */
INLINE int in_set(const ckh_rank_forest *forest, int32_t test, double x) {
  const int32_t *set = forest->sets + 2 * (size_t)test;
  int64_t category;
  if (!(x > -1 && x < 2147483648.0)) return 0;
  category = (int64_t)x;
  return category >> 5 < set[1] && (forest->words[set[0] + (category >> 5)] >> (category & 31) & 1);
}

/* How a forest's sums are numbers: high parts in units of one power of two and, below them, low ones of another. */
typedef struct {
  int shift;
  double unit, low_unit;
} number_format;

INLINE number_format format_of(const ckh_rank_forest *forest) {
  return (number_format){forest->high_exponent - forest->low_exponent, ldexp(1, forest->high_exponent),
                         ldexp(1, forest->low_exponent)};
}

INLINE double score_of(const number_format *format, uint64_t high, uint64_t low) {
  const double whole = high >> 63 ? -(double)(~high + 1) : (double)high;
  return whole * format->unit + (double)low * format->low_unit;
}

/* A score of the sums of high and of low parts. */
INLINE double score_of_parts(const number_format *format, uint64_t high, uint64_t low) {
  const uint64_t below = ((uint64_t)1 << format->shift) - 1, sign = (uint64_t)1 << 63;
  return score_of(format, high + ((low ^ sign) >> format->shift) - (sign >> format->shift), low & below); /* down */
}

INLINE size_t words_for(int32_t count) { return ((size_t)count + 63) / 64; }

INLINE int lowest_bit(uint64_t word) {
#if defined(__GNUC__)
  return __builtin_ctzll(word);
#else
  int bit = 0;
  while (!(word >> bit & 1)) bit++;
  return bit;
#endif
}

INLINE int32_t ones(uint64_t x, const int has_popcount) {
#if defined(__GNUC__)
  if (has_popcount) return (int32_t)__builtin_popcountll(x);
#endif
  (void)has_popcount;
  x -= x >> 1 & 0x5555555555555555u;
  x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
  return (int32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

INLINE int32_t ones_of(const uint64_t *words, size_t count) {
  int32_t all = 0;
  for (size_t w = 0; w < count; w++) all += ones(words[w], 0);
  return all;
}

INLINE void fill_ones(uint64_t *words, int32_t count) {
  memset(words, 0xff, (size_t)count / 64 * 8);
  if (count % 64) words[count / 64] = ((uint64_t)1 << count % 64) - 1;
}

INLINE void *grown(void *old, size_t count, size_t size) {
  return count > SIZE_MAX / 2 / size ? NULL : realloc(old, count * size + 8);
}

/* ckh_trees.c: the trees without the tests that do the same to all of a pool, whatever the problem. Functions that
   return an int give CKH_RANK_OK or what failed. */
INTERNAL int ckh_trees_open(laid_trees *trees, const ckh_rank_forest *forest, const ckh_rank_plan *plan);
INTERNAL void ckh_trees_close(laid_trees *trees);

/* ckh_tests.c: what tests do. */
INTERNAL int ckh_tests_open(ranker *r);
INTERNAL void ckh_tests_close(ranker *r);

/* What all tests do for problems, `together` of them. */
INTERNAL void ckh_tests_decide(ranker *r, const double *constants, const double *rows);

/* The members of a set for which a mixed test does the same to these places as for the first of them: to `r->scratch`.
   Returns that test's mask over places. */
INTERNAL const uint64_t *ckh_tests_alike(const ranker *r, int32_t set, const mixed_test *test, const uint64_t *places);

/* ckh_sets.c: sets of variants. */
INTERNAL int ckh_sets_open(ranker *r);
INTERNAL void ckh_sets_close(ranker *r);

/* Forget all sets but the first ones, of which only those of one variant may have values. */
INTERNAL void ckh_sets_forget(ranker *r);

/* What becomes of a set with those of its members on the left that are in `r->scratch`, and the rest on the right. */
INTERNAL int ckh_sets_part(ranker *r, int32_t set, int32_t *left, int32_t *right);

/* The same for a variant test, remembered. */
INTERNAL int ckh_sets_part_by_test(ranker *r, int32_t set, uint32_t test, int32_t *left, int32_t *right);

/* ckh_few.c: scores of CKH_RANK_FEW candidates at most; `held` is room for a byte of each test. */
INTERNAL void ckh_few_scores(const ckh_rank_forest *forest, const ckh_rank_plan *plan, const laid_trees *trees,
                             const double *constants, const double *rows, const int32_t *candidate, int32_t count,
                             uint8_t *held, double *scores);

#endif
