/* Ranking: scores of a few of a pool's candidates, which walk every tree by themselves.

   What a test does to them is a byte with a bit for each, so that no step down has a branch on what it is. */
#include "ckh_ranker.h"

enum { SIDE_BY_SIDE = 4 }; /* candidates in a tree at once: a step waits for the one before */

/* A candidate's value of a family or, where no problem changes it, its place in masks of the family's tests. */
typedef struct {
  const uint64_t *masks;
  size_t words;
  int32_t at;
  double value;
} placed;

static int is_in(const uint64_t *masks, int32_t mask, size_t words, int32_t at) {
  return (int)(masks[(size_t)mask * words + (size_t)at / 64] >> at % 64 & 1);
}

static int32_t class_of(const ckh_rank_plan *plan, int32_t partition, int32_t variant) {
  const int32_t first = plan->class_starts[partition], last = plan->class_starts[partition + 1] - 1;
  int32_t class = first;
  while (class < last && !is_in(plan->class_masks, class, words_for(plan->variants), variant)) class++;
  return class - first;
}

static placed place(const ckh_rank_plan *plan, family tests, family_values values, const double *constants,
                    const double *rows, int32_t candidate) {
  const int32_t variant = plan->variant_of[candidate], tile = plan->tile_of[candidate];
  const size_t words = words_for(plan->tiles);
  size_t class;
  if (values.kind == CONSTANT) return (placed){NULL, 0, 0, constants[values.source]};
  if (values.kind == VARIANT)
    return (placed){plan->variant_masks + (size_t)values.mask * words_for(plan->variants), words_for(plan->variants),
                    variant, 0};
  class = values.kind == MIXED ? (size_t)class_of(plan, values.partition, variant) : 0;
  if (values.source >= 0) return (placed){NULL, 0, 0, rows[((size_t)values.source + class) * (size_t)plan->tiles + (size_t)tile]};
  return (placed){plan->masks + ((size_t)values.mask + class * (size_t)tests.count) * words, words, tile, 0};
}

/* The first of a numerical family's tests that holds; the later ones hold as well. */
static int32_t first_held(const ckh_rank_forest *forest, family tests, placed at) {
  int32_t low = 0, high = tests.count;
  if (!at.masks) return position(forest->thresholds + tests.first, tests.count, tests.flags, at.value);
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (is_in(at.masks, middle, at.words, at.at))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static void mark(const ckh_rank_forest *forest, family tests, placed at, uint8_t bits, uint8_t *held) {
  held += tests.first;
  if (tests.flags & CATEGORICAL) {
    for (int32_t i = 0; i < tests.count; i++)
      if (at.masks ? is_in(at.masks, i, at.words, at.at) : in_set(forest, tests.first + i, at.value)) held[i] |= bits;
  } else {
    for (int32_t i = first_held(forest, tests, at); i < tests.count; i++) held[i] |= bits;
  }
}

/* For which of the candidates each test holds. */
static void decide(const ckh_rank_forest *forest, const ckh_rank_plan *plan, const double *constants,
                   const double *rows, const int32_t *candidate, int32_t count, uint8_t *held) {
  const uint8_t all = (uint8_t)((1 << count) - 1);
  memset(held, 0, (size_t)forest->tests);
  for (int32_t f = 0; f < forest->families; f++) {
    const family tests = family_of(forest, f);
    const family_values values = values_of(plan, f);
    const int is_same = values.kind == CONSTANT;
    for (int32_t i = 0; i < (is_same ? 1 : count); i++)
      mark(forest, tests, place(plan, tests, values, constants, rows, candidate[i]), is_same ? all : (uint8_t)(1 << i), held);
  }
}

/* One step down, or none from a leaf. */
INLINE int32_t below(const uint64_t *cells, const uint8_t *held, int32_t node, int i) {
  const uint32_t is_leaf = (uint32_t)node >> 31;
  const uint64_t cell = cells[(uint32_t)node & (is_leaf - 1)];
  const int32_t next = child(cell, node, held[(uint32_t)cell >> 2] >> i & 1);
  return is_leaf ? node : next;
}

/* The sums of the trees' values for candidates that walk side by side, of which the first is number `first`. */
static void walk(const ckh_rank_forest *forest, const int32_t *roots, const uint64_t *cells, const uint8_t *held,
                 int first, uint64_t *sums) {
  for (int32_t tree = 0; tree < forest->trees; tree++) {
    int32_t node[SIDE_BY_SIDE], all = roots[tree];
    for (int i = 0; i < SIDE_BY_SIDE; i++) node[i] = roots[tree];
    while (all >= 0) {
      all = -1;
      for (int i = 0; i < SIDE_BY_SIDE; i++) all &= node[i] = below(cells, held, node[i], first + i);
    }
    for (int i = 0; i < SIDE_BY_SIDE; i++) sums[i] += cells[(size_t)~node[i]];
  }
}

void ckh_few_scores(const ckh_rank_forest *forest, const ckh_rank_plan *plan, const laid_trees *trees,
                    const double *constants, const double *rows, const int32_t *candidate, int32_t count,
                    uint8_t *held, double *scores) {
  const number_format format = format_of(forest);
  uint64_t sums[2][CKH_RANK_FEW] = {{0}, {0}};
  decide(forest, plan, constants, rows, candidate, count, held);
  for (int part = 0; part < 2; part++)
    for (int32_t i = 0; trees->part[part] && i < count; i += SIDE_BY_SIDE)
      walk(forest, trees->roots, trees->part[part], held, i, sums[part] + i);
  for (int32_t i = 0; i < count; i++)
    scores[i] = trees->part[1] ? score_of_parts(&format, sums[0][i], sums[1][i]) : score_of(&format, sums[0][i], 0);
}
