/* Ranking: the trees as they are walked. */
#include "ckh_ranker.h"

enum { OPEN = 2 }; /* what a pool makes of a test, besides GO_RIGHT and GO_LEFT */

static uint8_t by_mask(const uint64_t *mask, int32_t count) {
  const int32_t all = ones_of(mask, words_for(count));
  return all == 0 ? GO_RIGHT : all == count ? GO_LEFT : OPEN;
}

/* What the pool makes of each test. */
static uint8_t *find_fates(const ckh_rank_forest *forest, const ckh_rank_plan *plan) {
  const size_t tile_words = words_for(plan->tiles), variant_words = words_for(plan->variants);
  uint8_t *fates = grown(NULL, (size_t)forest->tests, sizeof *fates);
  if (fates) memset(fates, OPEN, (size_t)forest->tests);
  for (int32_t f = 0; fates && f < forest->families; f++) {
    const family tests = family_of(forest, f);
    const family_values values = values_of(plan, f);
    for (int32_t i = 0; values.source < 0 && i < tests.count; i++) {
      const size_t mask = (size_t)(values.mask + i);
      uint8_t *fate = fates + tests.first + i;
      if (values.kind == TILE) *fate = by_mask(plan->masks + mask * tile_words, plan->tiles);
      if (values.kind == VARIANT) *fate = by_mask(plan->variant_masks + mask * variant_words, plan->variants);
    }
  }
  return fates;
}

/* The first node, or leaf, that the pool alone does not decide. */
static int32_t first_open(const ckh_rank_forest *forest, const uint8_t *fates, int32_t node) {
  while (node >= 0) {
    const int32_t *here = forest->nodes + 3 * (size_t)node;
    const uint8_t fate = fates[here[0]];
    if (fate == OPEN) break;
    node = here[fate == GO_LEFT ? 1 : 2];
  }
  return node;
}

static int lay_out(laid_trees *trees, const ckh_rank_forest *forest, const uint8_t *fates, int part) {
  const size_t room = (size_t)forest->leaves_count * 2 + 2; /* no tree has more nodes than leaves */
  uint64_t *cells = trees->part[part] = grown(NULL, room, sizeof *cells);
  int32_t at = 1, (*stack)[2] = grown(NULL, room, sizeof *stack); /* what is to be laid out, and whose right it is */
  if (!cells || !stack) {
    free(stack);
    return CKH_RANK_NO_MEMORY;
  }
  cells[0] = 0; /* what is looked at in place of a leaf */
  for (int32_t tree = 0; tree < forest->trees; tree++) {
    size_t depth = 1;
    stack[0][0] = first_open(forest, fates, forest->roots[tree]);
    stack[0][1] = 0;
    trees->roots[tree] = stack[0][0] < 0 ? ~at : at;
    while (depth) {
      const int32_t node = stack[--depth][0], parent = stack[depth][1];
      const int32_t *here = forest->nodes + (node < 0 ? 0 : 3 * (size_t)node);
      int32_t left, right;
      if (parent) cells[parent] |= (uint64_t)(at - parent) << 32;
      if (node < 0) {
        cells[at++] = (uint64_t)forest->leaves[2 * (size_t)~node + (size_t)part];
        continue;
      }
      left = first_open(forest, fates, here[1]);
      right = first_open(forest, fates, here[2]);
      cells[at] = (uint32_t)here[0] << 2 | (uint32_t)left >> 31 << 1 | (uint32_t)right >> 31;
      stack[depth][0] = right;
      stack[depth++][1] = at++;
      stack[depth][0] = left;
      stack[depth++][1] = 0;
    }
  }
  trees->roots[forest->trees] = at;
  free(stack);
  return CKH_RANK_OK;
}

/* Whether any leaf needs two integers. */
static int has_low_parts(const ckh_rank_forest *forest) {
  for (int64_t i = 0; i < forest->leaves_count; i++)
    if (forest->leaves[2 * i + 1]) return 1;
  return 0;
}

int ckh_trees_open(laid_trees *trees, const ckh_rank_forest *forest, const ckh_rank_plan *plan) {
  uint8_t *fates = find_fates(forest, plan);
  int failed = CKH_RANK_NO_MEMORY;
  trees->roots = grown(NULL, (size_t)forest->trees + 1, sizeof *trees->roots);
  if (fates && trees->roots) {
    failed = lay_out(trees, forest, fates, 0);
    if (!failed && has_low_parts(forest)) failed = lay_out(trees, forest, fates, 1);
  }
  free(fates);
  return failed;
}

void ckh_trees_close(laid_trees *trees) {
  free(trees->part[0]);
  free(trees->part[1]);
  free(trees->roots);
}
