/* Ranks a pool of candidates with a forest by partial evaluation. ckh_rank.h says what it is given.

   For each problem it first decides what every test does: the same to all candidates, or a split of the tiles, or one
   of the variants. Then it walks each tree once, with all candidates. A state is a node, a bit set of tiles and a set
   of variants. A test that the problem decides moves it on; any other may split it in two. Where two sides meet again,
   the smaller one gets the difference of their values, and the state goes on with the larger one's: most tiles are
   never touched. That is exact, since leaf values are integers, added modulo 2^64. Those that need two integers are
   walked twice, for the high parts and for the low ones.

   How data lie. Trees are cells of 64 bits, depth first, as `lay_out` says. Each test has an action: what it does in
   the two lowest bits, above them the number of its mask. Sets of variants are numbered as they arise, since there are
   few: first each variant alone, then all of them. A set has a row of sums, one of each tile, and apart from these
   what all tiles got; in the end sums are handed down until each variant alone has its own. A state that was split is
   a frame on a stack; in `tiles`, the halves' bit sets are the numbers 2 * depth + 1 and 2 * depth + 2, and the one
   of all tiles is number 0.

   C11 without extensions that are not guarded. No global state: any number of threads may rank, each with what it
   opened. */
#include "ckh_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
typedef uint64_t lanes __attribute__((vector_size(32), aligned(8), may_alias));
#else
#define INLINE static inline
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_V3 1
#define V3 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#endif

enum { LANES = 4 }; /* that are added at once */
enum { CONSTANT = 0, TILE = 1, VARIANT = 2, MIXED = 3 };                       /* kinds of families */
enum { CATEGORICAL = 1, DEFAULT_LEFT = 2, MISSING_ZERO = 4, MISSING_NAN = 8 }; /* flags of families */
enum { GO_RIGHT = 0, GO_LEFT = 1, SPLIT_TILES = 2, SPLIT_VARIANTS = 3 };       /* low bits of actions */
enum { EMPTY = -1, NO_MEMORY = -2 };                                           /* in place of a set's number */
#define ZERO_BOUND ((double)1e-35f)
#define MOST_SETS_BYTES ((size_t)1 << 25)
#ifndef MOST_SETS
#define MOST_SETS 64 /* that are kept at least, whatever their size */
#endif

/* Rows of the forest's and the plan's tables of families. */
typedef struct {
  int32_t input, flags, first, count;
} family;
typedef struct {
  int32_t kind, source, mask, partition;
} place;

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
#define NO_SPLIT UINT64_MAX

/* Where a walk is: a node of the cells or, if negative, ~ a leaf; a set of variants; the number of a bit set of tiles,
   and how many are in it; and how many splits are above. */
typedef struct {
  int32_t node, set, at, count;
  size_t depth;
} state;

/* A state that was split: its left and right half, which of them is smaller, which comes first, and what that one's
   value is once it is done. */
typedef struct {
  int32_t set[2], at[2], count[2], node; /* node: of the half that comes second */
  uint8_t smaller, first, first_done;
  uint64_t value;
} frame;

/* What is opened. */
typedef struct {
  const ckh_rank_forest *forest;
  const ckh_rank_plan *plan;
  size_t tile_words, variant_words, row; /* row: of sums, with what makes it a multiple of LANES */
  uint32_t *action;    /* of each test: what to do, and with which mask */
  uint32_t *splitting; /* the same, where no problem decides */
  int32_t *at;         /* of each tile: a position */
  mixed_test *mixed;   /* masks that come after those of variant tests */
  merged_classes *merged; /* of each family */
  int32_t *merged_class;  /* the number of the class whose masks count */
  uint64_t *merged_masks; /* the variants that are in it */
  uint64_t *masks;        /* over tiles */
  variant_set *sets;
  uint64_t *members;
  uint64_t *sums;    /* of each set: a row by tile */
  uint64_t *scratch; /* two sets of variants */
  int32_t set_count, set_room, set_limit, full; /* full: the set of all variants */
  int32_t *by_members; /* hash table of the sets */
  int32_t *touched;    /* by size: the first set that got any value */
  split *splits;       /* hash table */
  size_t members_room, splits_room, splits_count;
  uint64_t *high;        /* of each candidate, while the low parts are added; NULL if there are none */
  uint64_t *parts[2];    /* the trees with high parts and with low ones */
  const uint64_t *cells; /* those of the part that is added now */
  int32_t *roots;        /* of each tree, and at the end: where it begins in the cells */
  frame *frames;
  uint64_t *tiles; /* bit sets */
  size_t frames_room;
} ranker;

INLINE int lowest_bit(uint64_t word) {
#if defined(__GNUC__)
  return __builtin_ctzll(word);
#else
  int bit = 0;
  while (!(word >> bit & 1)) bit++;
  return bit;
#endif
}

INLINE int32_t ones(uint64_t x, const int is_v3) {
#if defined(HAS_V3)
  if (is_v3) return (int32_t)__builtin_popcountll(x);
#endif
  (void)is_v3;
  x -= x >> 1 & 0x5555555555555555u;
  x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
  return (int32_t)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
}

static int32_t ones_of(const uint64_t *words, size_t count) {
  int32_t all = 0;
  for (size_t w = 0; w < count; w++) all += ones(words[w], 0);
  return all;
}

static size_t words_for(int32_t count) { return ((size_t)count + 63) / 64; }

static void fill_ones(uint64_t *words, int32_t count) {
  memset(words, 0xff, (size_t)count / 64 * 8);
  if (count % 64) words[count / 64] = ((uint64_t)1 << count % 64) - 1;
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

static void *grown(void *old, size_t count, size_t size) {
  return count > SIZE_MAX / 2 / size ? NULL : realloc(old, count * size + 8);
}

static family family_of(const ranker *r, int32_t f) {
  family tests;
  memcpy(&tests, r->forest->family + 4 * (size_t)f, sizeof tests);
  return tests;
}

static place place_of(const ranker *r, int32_t f) {
  place values;
  memcpy(&values, r->plan->family + 4 * (size_t)f, sizeof values);
  return values;
}

static int32_t classes_of(const ranker *r, int32_t partition) {
  return r->plan->class_starts[partition + 1] - r->plan->class_starts[partition];
}

/* ---- trees ---- */

/* Whether any leaf needs two integers. */
static int has_low_parts(const ckh_rank_forest *forest) {
  for (int64_t i = 0; i < forest->leaves_count; i++)
    if (forest->leaves[2 * i + 1]) return 1;
  return 0;
}

/* The trees in depth-first order, in cells: a node has what is to its right (the rest is next to it) in the upper
   half, and in the lower one its test and, in the two lowest bits, whether a leaf is to its right and to its left. A
   leaf has its value. */
static int lay_out(ranker *r, int part) {
  const ckh_rank_forest *forest = r->forest;
  const size_t room = (size_t)forest->leaves_count * 2 + 2; /* no tree has more nodes than leaves */
  uint64_t *cells = r->parts[part] = grown(NULL, room, sizeof *cells);
  int32_t at = 1, (*stack)[2] = grown(NULL, room, sizeof *stack); /* what is to be laid out, and whose right it is */
  if (!cells || !stack) {
    free(stack);
    return CKH_RANK_NO_MEMORY;
  }
  cells[0] = 0; /* what is looked at in place of a leaf */
  for (int32_t tree = 0; tree < forest->trees; tree++) {
    size_t depth = 1;
    r->roots[tree] = at;
    stack[0][0] = forest->roots[tree];
    stack[0][1] = 0;
    while (depth) {
      const int32_t node = stack[--depth][0], parent = stack[depth][1];
      const int32_t *here = forest->nodes + (node < 0 ? 0 : 3 * (size_t)node);
      if (parent) cells[parent] |= (uint64_t)(at - parent) << 32;
      if (node < 0) {
        cells[at++] = (uint64_t)forest->leaves[2 * (size_t)~node + (size_t)part];
        continue;
      }
      cells[at] = (uint32_t)here[0] << 2 | (uint32_t)here[1] >> 31 << 1 | (uint32_t)here[2] >> 31;
      stack[depth][0] = here[2];
      stack[depth++][1] = at++;
      stack[depth][0] = here[1];
      stack[depth++][1] = 0;
    }
  }
  r->roots[forest->trees] = at;
  free(stack);
  return CKH_RANK_OK;
}

/* Have a tree brought near while those before it are walked: a quarter of the time, when the forest is in no cache. */
INLINE void fetch(const ranker *r, int32_t tree) {
#if defined(__GNUC__)
  if (tree < r->forest->trees) {
    const size_t end = (size_t)r->roots[tree + 1];
    for (size_t at = (size_t)r->roots[tree]; at < end; at += 8) __builtin_prefetch(r->cells + at);
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

/* ---- what values do at tests ---- */

/* The first of a numerical family's tests that holds; the later ones hold as well. */
static int32_t position(const double *threshold, int32_t count, int32_t flags, double x) {
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
static int in_set(const ckh_rank_forest *forest, int32_t test, double x) {
  const int32_t *set = forest->sets + 2 * (size_t)test;
  int64_t category;
  if (!(x > -1 && x < 2147483648.0)) return 0;
  category = (int64_t)x;
  return category >> 5 < set[1] && (forest->words[set[0] + (category >> 5)] >> (category & 31) & 1);
}

static void decide_constant(ranker *r, family tests, double x) {
  uint32_t *action = r->action + tests.first;
  int32_t i = 0;
  if (tests.flags & CATEGORICAL) {
    for (; i < tests.count; i++) action[i] = in_set(r->forest, tests.first + i, x) ? GO_LEFT : GO_RIGHT;
  } else {
    const int32_t at = position(r->forest->thresholds + tests.first, tests.count, tests.flags, x);
    for (; i < at; i++) action[i] = GO_RIGHT;
    for (; i < tests.count; i++) action[i] = GO_LEFT;
  }
}

/* Masks of categorical tests over the tiles. */
static void fill_sets(const ranker *r, family tests, const double *row, uint64_t *masks) {
  const size_t words = r->tile_words;
  memset(masks, 0, (size_t)tests.count * words * 8);
  for (int32_t i = 0; i < tests.count; i++)
    for (int32_t t = 0; t < r->plan->tiles; t++)
      masks[(size_t)i * words + (size_t)t / 64] |= (uint64_t)in_set(r->forest, tests.first + i, row[t]) << t % 64;
}

/* Positions of the tiles in a numerical family. Its tests before `low` hold for no tile, and those from `high` on for
   all. */
static void find_positions(ranker *r, family tests, const double *row, int32_t *low, int32_t *high) {
  const double *threshold = r->forest->thresholds + tests.first;
  *low = tests.count;
  *high = 0;
  for (int32_t t = 0; t < r->plan->tiles; t++) {
    const int32_t at =
        t && row[t] == row[t - 1] ? r->at[t - 1] : position(threshold, tests.count, tests.flags, row[t]);
    r->at[t] = at;
    if (at < *low) *low = at;
    if (at > *high) *high = at;
  }
}

/* Masks of a numerical family's tests from `low` to `high` over the tiles, by the positions that were found. */
static void fill_row(const ranker *r, uint64_t *masks, int32_t low, int32_t high) {
  const size_t words = r->tile_words;
  memset(masks + (size_t)low * words, 0, (size_t)(high - low) * words * 8);
  for (int32_t t = 0; t < r->plan->tiles; t++)
    if (r->at[t] < high) masks[(size_t)r->at[t] * words + (size_t)t / 64] |= (uint64_t)1 << t % 64;
  for (size_t i = ((size_t)low + 1) * words; i < (size_t)high * words; i++) masks[i] |= masks[i - words];
}

/* Merge the classes of variants for which all tests of a mixed family do the same. */
static void merge_classes(ranker *r, int32_t f) {
  const place values = place_of(r, f);
  const size_t words = r->variant_words, size = (size_t)family_of(r, f).count * r->tile_words;
  const uint64_t *masks = r->masks + (size_t)values.mask * r->tile_words;
  const uint64_t *own = r->plan->class_masks + (size_t)r->plan->class_starts[values.partition] * words;
  const int32_t classes = classes_of(r, values.partition);
  int32_t *of = r->merged_class + r->merged[f].first, count = 0;
  uint64_t *variants = r->merged_masks + (size_t)r->merged[f].first * words;
  for (int32_t c = 0; c < classes; c++, own += words) {
    int32_t e = 0;
    while (e < count && memcmp(masks + (size_t)of[e] * size, masks + (size_t)c * size, size * 8)) e++;
    if (e == count) {
      of[count++] = c;
      memset(variants + (size_t)e * words, 0, words * 8);
    }
    for (size_t w = 0; w < words; w++) variants[(size_t)e * words + w] |= own[w];
  }
  r->merged[f].count = count;
}

/* A family over tiles: what its tests do, and their masks, class by class. */
static void decide_family(ranker *r, int32_t f, const double *rows) {
  const family tests = family_of(r, f);
  const place values = place_of(r, f);
  const int32_t classes = values.kind == MIXED ? classes_of(r, values.partition) : 1, count = tests.count;
  uint32_t *action = r->action + tests.first;
  int32_t low = count, high = 0, i = 0;
  for (int32_t c = 0; c < classes; c++) {
    const double *row = rows + (size_t)(values.source + c) * (size_t)r->plan->tiles;
    uint64_t *masks = r->masks + ((size_t)values.mask + (size_t)c * (size_t)count) * r->tile_words;
    int32_t own_low = 0, own_high = count;
    if (tests.flags & CATEGORICAL) {
      fill_sets(r, tests, row, masks);
    } else {
      find_positions(r, tests, row, &own_low, &own_high);
      if (classes > 1) /* other classes may make a test split of which this one needs no mask */
        fill_row(r, masks, 0, count);
      else if (own_low < own_high)
        fill_row(r, masks, own_low, own_high);
    }
    if (own_low < low) low = own_low;
    if (own_high > high) high = own_high;
  }
  if (values.kind == MIXED) merge_classes(r, f);
  for (; i < low; i++) action[i] = GO_RIGHT;
  for (; i < high; i++) action[i] = r->splitting[tests.first + i];
  for (; i < count; i++) action[i] = GO_LEFT;
}

/* What all tests do for a problem. */
static void decide(ranker *r, const double *constants, const double *rows) {
  for (int32_t f = 0; f < r->forest->families; f++) {
    const place values = place_of(r, f);
    if (values.kind == CONSTANT)
      decide_constant(r, family_of(r, f), constants[values.source]);
    else if (values.source >= 0)
      decide_family(r, f, rows);
  }
}

/* What a mask does to everything: GO_LEFT, GO_RIGHT or, if it splits it, `otherwise`. */
static uint32_t by_mask(const uint64_t *mask, int32_t count, uint32_t otherwise) {
  const int32_t all = ones_of(mask, words_for(count));
  return all == 0 ? GO_RIGHT : all == count ? GO_LEFT : otherwise;
}

/* What tests do that no problem decides. */
static void set_actions(ranker *r) {
  const ckh_rank_plan *plan = r->plan;
  uint32_t mixed = (uint32_t)plan->variant_tests;
  for (int32_t f = 0; f < r->forest->families; f++) {
    const family tests = family_of(r, f);
    const place values = place_of(r, f);
    if (values.kind == MIXED && values.source < 0) merge_classes(r, f);
    for (int32_t i = 0; i < tests.count; i++) {
      uint32_t *action = r->splitting + tests.first + i;
      const uint32_t mask = (uint32_t)(values.mask + i);
      *action = GO_RIGHT;
      if (values.kind == TILE) {
        *action = SPLIT_TILES | mask << 2;
        if (values.source < 0) *action = by_mask(r->masks + mask * r->tile_words, plan->tiles, *action);
      }
      if (values.kind == VARIANT)
        *action = by_mask(plan->variant_masks + mask * r->variant_words, plan->variants, SPLIT_VARIANTS | mask << 2);
      if (values.kind == MIXED) {
        r->mixed[mixed - (uint32_t)plan->variant_tests] = (mixed_test){mask, (uint32_t)tests.count, f};
        *action = SPLIT_VARIANTS | mixed++ << 2;
      }
    }
  }
  r->action[r->forest->tests] = GO_RIGHT; /* there may be no other */
  memcpy(r->action, r->splitting, (size_t)r->forest->tests * sizeof *r->action);
}

/* ---- sets of variants ---- */

static uint64_t hash_of(const uint64_t *members, size_t words) {
  uint64_t hash = 0;
  for (size_t w = 0; w < words; w++) hash = mix(hash ^ members[w]);
  return hash;
}

/* Put all sets into the hash table anew. */
static void index_sets(ranker *r) {
  int32_t *table = r->by_members;
  memset(table, 0xff, r->members_room * sizeof *table);
  for (int32_t e = 0; e < r->set_count; e++) {
    uint64_t hash = hash_of(r->members + (size_t)e * r->variant_words, r->variant_words);
    while (table[hash & (r->members_room - 1)] >= 0) hash++;
    table[hash & (r->members_room - 1)] = e;
  }
}

static int grow_table(ranker *r) {
  const size_t room = r->members_room ? r->members_room * 2 : 256;
  int32_t *table = grown(r->by_members, room, sizeof *table);
  if (!table) return CKH_RANK_NO_MEMORY;
  r->by_members = table;
  r->members_room = room;
  index_sets(r);
  return CKH_RANK_OK;
}

static int grow_sets(ranker *r) {
  const size_t room = (size_t)r->set_room * 2 + 64;
  variant_set *sets;
  uint64_t *members, *sums;
  if (!(sets = grown(r->sets, room, sizeof *sets))) return CKH_RANK_NO_MEMORY;
  r->sets = sets;
  if (!(members = grown(r->members, room * r->variant_words, sizeof *members))) return CKH_RANK_NO_MEMORY;
  r->members = members;
  if (!(sums = grown(r->sums, room * r->row, sizeof *sums))) return CKH_RANK_NO_MEMORY;
  r->sums = sums;
  r->set_room = (int32_t)room;
  return CKH_RANK_OK;
}

/* The number of a set, which it gets if it has none; or EMPTY, or NO_MEMORY. */
static int32_t number_of(ranker *r, const uint64_t *members) {
  const size_t words = r->variant_words;
  const int32_t size = ones_of(members, words);
  uint64_t hash = hash_of(members, words);
  if (!size) return EMPTY;
  if ((size_t)r->set_count * 2 >= r->members_room && grow_table(r)) return NO_MEMORY;
  for (;; hash++) {
    const int32_t e = r->by_members[hash & (r->members_room - 1)];
    if (e < 0) break;
    if (!memcmp(r->members + (size_t)e * words, members, words * 8)) return e;
  }
  if (r->set_count == r->set_room && grow_sets(r)) return NO_MEMORY;
  memcpy(r->members + (size_t)r->set_count * words, members, words * 8);
  memset(r->sums + (size_t)r->set_count * r->row, 0, r->row * sizeof *r->sums);
  r->sets[r->set_count] = (variant_set){size, -1, -1, UNTOUCHED, 0};
  r->by_members[hash & (r->members_room - 1)] = r->set_count;
  return r->set_count++;
}

/* Number each variant alone, and all of them. */
static int first_sets(ranker *r) {
  memset(r->touched, 0xff, ((size_t)r->plan->variants + 1) * sizeof *r->touched);
  for (int32_t v = 0; v <= r->plan->variants; v++) {
    memset(r->scratch, 0, r->variant_words * 8);
    if (v < r->plan->variants)
      r->scratch[v / 64] = (uint64_t)1 << v % 64;
    else
      fill_ones(r->scratch, v);
    if ((r->full = number_of(r, r->scratch)) == NO_MEMORY) return CKH_RANK_NO_MEMORY;
  }
  return CKH_RANK_OK;
}

static int grow_splits(ranker *r) {
  const size_t room = r->splits_room ? r->splits_room * 2 : 1024;
  split *table = grown(NULL, room, sizeof *table);
  if (!table) return CKH_RANK_NO_MEMORY;
  memset(table, 0xff, room * sizeof *table);
  for (size_t i = 0; i < r->splits_room; i++) {
    const split *old = r->splits + i;
    uint64_t hash = mix(old->key);
    if (old->key == NO_SPLIT) continue;
    while (table[hash & (room - 1)].key != NO_SPLIT) hash++;
    table[hash & (room - 1)] = *old;
  }
  free(r->splits);
  r->splits = table;
  r->splits_room = room;
  return CKH_RANK_OK;
}

/* What becomes of a set with those of its members on the left that are in a mask, and the rest on the right. */
static int part(ranker *r, int32_t set, const uint64_t *mask, uint64_t *scratch, int32_t *left, int32_t *right) {
  const size_t words = r->variant_words;
  for (size_t w = 0; w < words; w++) scratch[w] = r->members[(size_t)set * words + w] & mask[w];
  *left = number_of(r, scratch);
  for (size_t w = 0; w < words; w++) scratch[w] = r->members[(size_t)set * words + w] & ~mask[w];
  *right = number_of(r, scratch);
  if (*left == NO_MEMORY || *right == NO_MEMORY) return CKH_RANK_NO_MEMORY;
  if (*left >= 0 && *right >= 0 && r->sets[set].left < 0) {
    r->sets[set].left = *left;
    r->sets[set].right = *right;
  }
  return CKH_RANK_OK;
}

/* The same for a variant test, remembered. */
static int part_by_test(ranker *r, int32_t set, uint32_t test, int32_t *left, int32_t *right) {
  const uint64_t *mask = r->plan->variant_masks + (size_t)test * r->variant_words, key = (uint64_t)set << 32 | test;
  uint64_t hash = mix(key);
  if (r->splits_count * 2 >= r->splits_room && grow_splits(r)) return CKH_RANK_NO_MEMORY;
  for (;; hash++) {
    split *known = r->splits + (hash & (r->splits_room - 1));
    if (known->key == key) {
      *left = known->left;
      *right = known->right;
      return CKH_RANK_OK;
    }
    if (known->key == NO_SPLIT) {
      if (part(r, set, mask, r->scratch, left, right)) return CKH_RANK_NO_MEMORY;
      *known = (split){key, *left, *right};
      r->splits_count++;
      return CKH_RANK_OK;
    }
  }
}

/* The members of a set for which a mixed test does the same to these tiles as for the first of them: to `scratch`.
   Returns that test's mask over tiles. */
static const uint64_t *alike(const ranker *r, int32_t set, const mixed_test *test, const uint64_t *tiles) {
  const size_t words = r->variant_words;
  const uint64_t *members = r->members + (size_t)set * words, *mask = NULL;
  const merged_classes *merged = r->merged + test->family;
  uint64_t *scratch = r->scratch;
  memset(scratch, 0, words * 8);
  for (int32_t e = merged->first; e < merged->first + merged->count; e++) {
    const uint64_t *variants = r->merged_masks + (size_t)e * words;
    const uint64_t *own = r->masks + (test->mask + (size_t)r->merged_class[e] * test->step) * r->tile_words;
    uint64_t any = 0, differs = 0;
    for (size_t w = 0; w < words; w++) any |= members[w] & variants[w];
    if (!any) continue;
    if (!mask) mask = own;
    for (size_t w = 0; w < r->tile_words; w++) differs |= (own[w] ^ mask[w]) & tiles[w];
    if (!differs)
      for (size_t w = 0; w < words; w++) scratch[w] |= members[w] & variants[w];
  }
  return mask;
}

/* ---- adding to sums ---- */

INLINE void touch(ranker *r, int32_t set) {
  variant_set *touched = r->sets + set;
  if (touched->next != UNTOUCHED) return;
  touched->next = r->touched[touched->size];
  r->touched[touched->size] = set;
}

/* All bits or none of LANES words, for each set of them. */
#define ALL(b, lane) (0 - (uint64_t)((b) >> (lane) & 1))
#define SPREAD(b) {ALL(b, 0), ALL(b, 1), ALL(b, 2), ALL(b, 3)}
#define SPREAD4(b) SPREAD(b), SPREAD(b + 1), SPREAD(b + 2), SPREAD(b + 3)
static const uint64_t spread[16][LANES] = {SPREAD4(0), SPREAD4(4), SPREAD4(8), SPREAD4(12)};

/* Adds to the tiles of a set of variants. */
INLINE void add(ranker *r, int32_t set, const uint64_t *tiles, int32_t count, uint64_t x, size_t words) {
  uint64_t *sums = r->sums + (size_t)set * r->row;
  if (!x) return;
  touch(r, set);
  if (count == r->plan->tiles) {
    r->sets[set].all += x;
    return;
  }
  if (words > 4 && 16 * (int64_t)count < r->plan->tiles) { /* few of many */
    for (size_t w = 0; w < words; w++, sums += 64)
      for (uint64_t rest = tiles[w]; rest; rest &= rest - 1) sums[lowest_bit(rest)] += x;
    return;
  }
  for (size_t w = 0, rest = r->row; w < words; w++, sums += 64, rest -= 64) { /* without a branch that asks who is in */
    uint64_t bits = tiles[w];
    for (size_t t = 0; t < (w + 1 < words ? 64 : rest); t += LANES, bits >>= LANES) {
#if defined(__GNUC__)
      *(lanes *)(sums + t) += *(const lanes *)spread[bits & 15] & (x + (lanes){0});
#else
      for (size_t lane = 0; lane < LANES; lane++) sums[t + lane] += spread[bits & 15][lane] & x;
#endif
    }
  }
}

INLINE void push(ranker *r, const variant_set *from, int32_t to) {
  const uint64_t *a = r->sums + (size_t)(from - r->sets) * r->row;
  uint64_t *b = r->sums + (size_t)to * r->row;
  for (size_t t = 0; t < r->row; t += LANES)
    for (size_t lane = t; lane < t + LANES; lane++) b[lane] += a[lane];
  touch(r, to);
  r->sets[to].all += from->all;
}

INLINE void push_to_members(ranker *r, const variant_set *from) {
  const uint64_t *members = r->members + (size_t)(from - r->sets) * r->variant_words;
  for (size_t w = 0; w < r->variant_words; w++)
    for (uint64_t rest = members[w]; rest; rest &= rest - 1) push(r, from, (int32_t)w * 64 + lowest_bit(rest));
}

/* Hand the sums of sets down to their parts, the largest first, until each variant alone has its own. */
INLINE void hand_down(ranker *r) {
  for (int32_t size = r->plan->variants; size > 1; size--) {
    for (int32_t e = r->touched[size]; e >= 0;) {
      variant_set *set = r->sets + e;
      if (set->left >= 0) {
        push(r, set, set->left);
        push(r, set, set->right);
      } else {
        push_to_members(r, set);
      }
      set->all = 0;
      memset(r->sums + (size_t)e * r->row, 0, r->row * sizeof *r->sums);
      e = set->next;
      set->next = UNTOUCHED;
    }
    r->touched[size] = -1;
  }
}

/* Forget all sets but the first ones. */
INLINE void forget_sets(ranker *r) {
  hand_down(r);
  r->set_count = r->full + 1;
  r->sets[r->full].left = r->sets[r->full].right = -1;
  index_sets(r);
  r->splits_count = 0;
  if (r->splits) memset(r->splits, 0xff, r->splits_room * sizeof *r->splits);
}

/* Forget what single variants got. */
static void clear(ranker *r) {
  for (int32_t v = 0; v < r->plan->variants; v++) {
    r->sets[v].all = 0;
    r->sets[v].next = UNTOUCHED;
  }
  r->touched[1] = -1;
  memset(r->sums, 0, (size_t)r->plan->variants * r->row * sizeof *r->sums);
}

/* ---- walking a tree ---- */

static int grow_frames(ranker *r) {
  const size_t room = r->frames_room * 2 + 32;
  frame *frames;
  uint64_t *tiles;
  if (room > INT32_MAX / 4) return CKH_RANK_TOO_DEEP;
  if (!(frames = grown(r->frames, room, sizeof *frames))) return CKH_RANK_NO_MEMORY;
  r->frames = frames;
  if (!(tiles = grown(r->tiles, (2 * room + 1) * r->tile_words, sizeof *tiles))) return CKH_RANK_NO_MEMORY;
  r->tiles = tiles;
  r->frames_room = room;
  return CKH_RANK_OK;
}

/* One step down where the problem decides: whether there is none, as at a leaf. No branch asks which it is. */
INLINE int is_decided(const uint64_t *cells, const uint32_t *action, int32_t *node) {
  const uint32_t is_leaf = (uint32_t)*node >> 31;
  const uint64_t cell = cells[(uint32_t)*node & (is_leaf - 1)];
  const uint32_t act = action[(uint32_t)cell >> 2];
  const int stops = (act | is_leaf << 1) > GO_LEFT;
  const int32_t below = *node + (act ? 1 : (int32_t)(cell >> 32)), leads_to_leaf = (int32_t)(cell >> (act & 1) & 1);
  *node = stops ? *node : below ^ -leads_to_leaf;
  return stops;
}

/* Both go on to the first node that the problem does not decide, or to a leaf. */
INLINE void decide_both(const uint64_t *cells, const uint32_t *action, int32_t *one, int32_t *other) {
  while (!(is_decided(cells, action, one) & is_decided(cells, action, other))) continue;
}

INLINE int32_t decided(const uint64_t *cells, const uint32_t *action, int32_t node) {
  while (!is_decided(cells, action, &node)) continue;
  return node;
}

/* What a test makes of a state: all of it goes on to one side, or the frame has its halves. */
enum { FAILED = -1, ALL_RIGHT = 0, ALL_LEFT = 1, HALVES = 2, HALVES_AT_SAME_NODE = 3 };

INLINE int split_tiles(const ranker *r, frame *f, size_t depth, const uint64_t *mask, const size_t words,
                       const int is_v3) {
  const int32_t count = f->count[0];
  const uint64_t *tiles = r->tiles + (size_t)f->at[0] * words;
  uint64_t *in_left = r->tiles + (2 * depth + 1) * words, *in_right = in_left + words;
  int32_t left_count = 0;
  for (size_t w = 0; w < words; w++) {
    in_left[w] = tiles[w] & mask[w];
    in_right[w] = tiles[w] & ~mask[w];
    left_count += ones(in_left[w], is_v3);
  }
  if (left_count == 0 || left_count == count) return left_count ? ALL_LEFT : ALL_RIGHT;
  f->at[0] = (int32_t)(2 * depth) + 1;
  f->at[1] = f->at[0] + 1;
  f->count[0] = left_count;
  f->count[1] = count - left_count;
  f->smaller = 2 * left_count >= count;
  return HALVES;
}

INLINE int smaller_side(const ranker *r, const frame *f) {
  return r->sets[f->set[0]].size >= r->sets[f->set[1]].size;
}

INLINE int split_variants(ranker *r, frame *f, uint32_t test) {
  if (part_by_test(r, f->set[0], test, f->set, f->set + 1)) return FAILED;
  if (f->set[0] < 0 || f->set[1] < 0) return f->set[0] < 0 ? ALL_RIGHT : ALL_LEFT;
  f->smaller = (uint8_t)smaller_side(r, f);
  return HALVES;
}

/* The halves meet a mixed test again if it does not do the same for all variants; else it splits the tiles. */
INLINE int split_mixed(ranker *r, frame *f, size_t depth, const mixed_test *test, const size_t words, const int is_v3) {
  const int32_t set = f->set[0];
  const uint64_t *mask = alike(r, set, test, r->tiles + (size_t)f->at[0] * words);
  if (part(r, set, r->scratch, r->scratch + r->variant_words, f->set, f->set + 1)) return FAILED;
  if (f->set[1] >= 0) {
    f->smaller = (uint8_t)smaller_side(r, f);
    return HALVES_AT_SAME_NODE;
  }
  f->set[1] = set;
  return split_tiles(r, f, depth, mask, words, is_v3);
}

INLINE int split_state(ranker *r, frame *f, const state *now, uint32_t act, const size_t words, const int is_v3) {
  const uint32_t test = act >> 2, variant_tests = (uint32_t)r->plan->variant_tests;
  f->set[0] = f->set[1] = now->set;
  f->at[0] = f->at[1] = now->at;
  f->count[0] = f->count[1] = now->count;
  if ((act & 3) == SPLIT_TILES) return split_tiles(r, f, now->depth, r->masks + test * words, words, is_v3);
  if (test < variant_tests) return split_variants(r, f, test);
  return split_mixed(r, f, now->depth, r->mixed + (test - variant_tests), words, is_v3);
}

/* The value of a state of which the halves have these: that of the larger half, once the smaller one got the rest. */
INLINE uint64_t joined(ranker *r, const frame *f, uint64_t second, size_t words) {
  const int side = f->smaller;
  const uint64_t is_first = (uint64_t)(side ^ f->first) - 1; /* all bits, or none: either is as likely */
  const uint64_t more = ((f->value - second) ^ ~is_first) - ~is_first;
  const uint64_t value = second ^ ((second ^ f->value) & ~is_first);
  add(r, f->set[side], r->tiles + (size_t)f->at[side] * words, f->count[side], more, words);
  return value;
}

/* Goes on with one half; the other one is a leaf, or its turn comes later. */
INLINE void enter_half(const ranker *r, frame *f, state *now, int32_t left, int32_t right) {
  int side;
  f->first = right < 0; /* a leaf comes first */
  f->first_done = (left | right) < 0;
  if (f->first_done) f->value = leaf(r, f->first ? right : left);
  f->node = right;
  side = f->first ^ f->first_done; /* that comes now */
  *now = (state){side ? right : left, f->set[side], f->at[side], f->count[side], now->depth + 1};
}

/* Goes down to a leaf, or to a split between two leaves: `value` is what the state gets there. */
INLINE int walk_down(ranker *r, state *now, uint64_t *value, const size_t words, const int is_v3) {
  const uint64_t *cells = r->cells;
  const uint32_t *action = r->action;
  while (now->node >= 0) {
    const uint64_t cell = cells[now->node];
    int32_t left = child(cell, now->node, 1), right = child(cell, now->node, 0);
    frame *f;
    int made;
    if (now->depth == r->frames_room) {
      const int failed = grow_frames(r);
      if (failed) return failed;
    }
    f = r->frames + now->depth;
    made = split_state(r, f, now, action[(uint32_t)cell >> 2], words, is_v3);
    if (made == FAILED) return CKH_RANK_NO_MEMORY;
    if (made == ALL_LEFT || made == ALL_RIGHT) {
      now->node = decided(cells, action, made == ALL_LEFT ? left : right);
      continue;
    }
    if (made == HALVES_AT_SAME_NODE) left = right = now->node;
    decide_both(cells, action, &left, &right);
    if ((left & right) < 0) { /* no need to come back */
      f->first = 1;
      f->value = leaf(r, right);
      *value = joined(r, f, leaf(r, left), words);
      return CKH_RANK_OK;
    }
    enter_half(r, f, now, left, right);
  }
  *value = leaf(r, now->node);
  return CKH_RANK_OK;
}

/* Goes up with a state's value as far as both halves are done: whether that is the root, and `value` the tree's. */
INLINE int walk_up(ranker *r, state *now, uint64_t *value, const size_t words) {
  for (; now->depth; now->depth--) {
    frame *f = r->frames + now->depth - 1;
    if (!f->first_done) {
      f->first_done = 1;
      f->value = *value;
      *now = (state){f->node, f->set[1], f->at[1], f->count[1], now->depth};
      return 0;
    }
    *value = joined(r, f, *value, words);
  }
  return 1;
}

/* Adds a tree's values, but for what all candidates get, which goes to `common`. */
INLINE int walk_tree(ranker *r, int32_t root, uint64_t *common, const size_t words, const int is_v3) {
  state now = {decided(r->cells, r->action, root), r->full, 0, r->plan->tiles, 0};
  uint64_t value;
  do {
    const int failed = walk_down(r, &now, &value, words, is_v3);
    if (failed) return failed;
  } while (!walk_up(r, &now, &value, words));
  *common += value;
  return CKH_RANK_OK;
}

INLINE int walk_forest(ranker *r, uint64_t *common, const size_t words, const int is_v3) {
  fill_ones(r->tiles, r->plan->tiles);
  for (int32_t tree = 0; tree < r->forest->trees; tree++) {
    const int32_t root = r->forest->roots[tree] < 0 ? ~r->roots[tree] : r->roots[tree];
    int failed;
    fetch(r, tree + 2);
    failed = walk_tree(r, root, common, words, is_v3);
    if (failed) return failed;
    if (r->set_count > r->set_limit) forget_sets(r);
  }
  return CKH_RANK_OK;
}

/* ---- from sums to scores ---- */

INLINE uint64_t sum_of(const ranker *r, int32_t candidate, uint64_t common) {
  const int32_t variant = r->plan->variant_of[candidate];
  const size_t at = (size_t)variant * r->row + (size_t)r->plan->tile_of[candidate];
  return r->sums[at] + r->sets[variant].all + common;
}

INLINE void keep_high(ranker *r, uint64_t common) {
  for (int32_t c = 0; c < r->plan->candidates; c++) r->high[c] = sum_of(r, c, common);
}

INLINE void write_scores(const ranker *r, uint64_t common, double *scores) {
  const int shift = r->forest->high_exponent - r->forest->low_exponent;
  const uint64_t below = ((uint64_t)1 << shift) - 1, sign = (uint64_t)1 << 63;
  const double unit = ldexp(1, r->forest->high_exponent), low_unit = ldexp(1, r->forest->low_exponent);
  for (int32_t c = 0; c < r->plan->candidates; c++) {
    uint64_t high = sum_of(r, c, common), low = 0;
    if (r->high) {
      low = high;
      high = r->high[c] + ((low ^ sign) >> shift) - (sign >> shift); /* rounded down, also if negative */
    }
    const double whole = high & sign ? -(double)(~high + 1) : (double)high;
    scores[c] = whole * unit + (double)(low & below) * low_unit;
  }
}

#define WALK(words) walk_forest(r, &common, words, is_v3)

INLINE int rank(ranker *r, const double *constants, const double *rows, double *scores, const int is_v3) {
  decide(r, constants, rows);
  for (int is_last = !r->high; is_last < 2; is_last++) {
    uint64_t common = 0;
    int failed;
    r->cells = r->parts[r->high ? is_last : 0];
    switch (r->tile_words) {
      case 1: failed = WALK(1); break;
      case 2: failed = WALK(2); break;
      case 3: failed = WALK(3); break;
      case 4: failed = WALK(4); break;
      default: failed = WALK(r->tile_words);
    }
    if (failed) return failed;
    hand_down(r);
    if (is_last)
      write_scores(r, common, scores);
    else
      keep_high(r, common);
    clear(r);
  }
  return CKH_RANK_OK;
}

static int rank_portably(ranker *r, const double *constants, const double *rows, double *scores) {
  return rank(r, constants, rows, scores, 0);
}
#ifdef HAS_V3
V3 static int rank_v3(ranker *r, const double *constants, const double *rows, double *scores) {
  return rank(r, constants, rows, scores, 1);
}
#endif

/* ---- the interface ---- */

/* Where the classes of each family are among all; how many these are, and the tests of mixed families. */
static void count_classes(ranker *r, size_t *classes, size_t *tests) {
  *classes = *tests = 0;
  for (int32_t f = 0; f < r->forest->families; f++) {
    const place values = place_of(r, f);
    r->merged[f] = (merged_classes){(int32_t)*classes, 0};
    if (values.kind != MIXED) continue;
    *classes += (size_t)classes_of(r, values.partition);
    *tests += (size_t)family_of(r, f).count;
  }
}

static int make_room(ranker *r) {
  const ckh_rank_plan *plan = r->plan;
  size_t classes, mixed;
  if (!(r->merged = grown(NULL, (size_t)r->forest->families, sizeof *r->merged))) return CKH_RANK_NO_MEMORY;
  count_classes(r, &classes, &mixed);
  if (classes > INT32_MAX) return CKH_RANK_NO_MEMORY;
  r->action = grown(NULL, (size_t)r->forest->tests + 1, sizeof *r->action);
  r->splitting = grown(NULL, (size_t)r->forest->tests, sizeof *r->splitting);
  r->at = grown(NULL, (size_t)plan->tiles, sizeof *r->at);
  r->mixed = grown(NULL, mixed, sizeof *r->mixed);
  r->merged_class = grown(NULL, classes, sizeof *r->merged_class);
  r->merged_masks = grown(NULL, classes * r->variant_words, sizeof *r->merged_masks);
  r->masks = grown(NULL, (size_t)plan->all_masks * r->tile_words, sizeof *r->masks);
  r->scratch = grown(NULL, 2 * r->variant_words, sizeof *r->scratch);
  r->touched = grown(NULL, (size_t)plan->variants + 1, sizeof *r->touched);
  r->roots = grown(NULL, (size_t)r->forest->trees + 1, sizeof *r->roots);
  if (!r->action || !r->splitting || !r->at || !r->mixed || !r->merged_class) return CKH_RANK_NO_MEMORY;
  if (!r->merged_masks || !r->masks || !r->scratch || !r->touched || !r->roots) return CKH_RANK_NO_MEMORY;
  return grow_frames(r);
}

/* How many sets are kept before all but the first ones are forgotten. */
static int32_t most_sets(const ranker *r) {
  const size_t per_set = r->row * 8 + r->variant_words * 8 + sizeof(variant_set), fit = MOST_SETS_BYTES / per_set;
  return r->plan->variants + MOST_SETS + (int32_t)(MOST_SETS && fit > MOST_SETS ? fit : 0);
}

static int prepare(ranker *r) {
  const ckh_rank_plan *plan = r->plan;
  r->tile_words = words_for(plan->tiles);
  r->variant_words = words_for(plan->variants);
  r->row = ((size_t)plan->tiles + LANES - 1) / LANES * LANES;
  r->set_limit = most_sets(r);
  if (make_room(r) || lay_out(r, 0)) return CKH_RANK_NO_MEMORY;
  if (has_low_parts(r->forest)) {
    if (lay_out(r, 1)) return CKH_RANK_NO_MEMORY;
    if (!(r->high = grown(NULL, (size_t)plan->candidates, sizeof *r->high))) return CKH_RANK_NO_MEMORY;
  }
  memcpy(r->masks, plan->masks, (size_t)plan->static_masks * r->tile_words * 8);
  set_actions(r);
  return first_sets(r);
}

int32_t ckh_rank_abi(void) { return CKH_RANK_ABI; }

void *ckh_rank_open(const ckh_rank_forest *forest, const ckh_rank_plan *plan) {
  ranker *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->forest = forest;
  r->plan = plan;
  if (!prepare(r)) return r;
  ckh_rank_close(r);
  return NULL;
}

void ckh_rank_close(void *opened) {
  ranker *r = opened;
  if (!r) return;
  free(r->action);
  free(r->splitting);
  free(r->at);
  free(r->mixed);
  free(r->merged);
  free(r->merged_class);
  free(r->merged_masks);
  free(r->masks);
  free(r->sets);
  free(r->members);
  free(r->sums);
  free(r->scratch);
  free(r->by_members);
  free(r->touched);
  free(r->splits);
  free(r->high);
  free(r->parts[0]);
  free(r->parts[1]);
  free(r->roots);
  free(r->frames);
  free(r->tiles);
  free(r);
}

int32_t ckh_rank_scores(void *opened, int64_t problems, const double *constants, const double *rows, double *scores,
                        int64_t stride, int32_t portable) {
  ranker *r = opened;
  const ckh_rank_plan *plan = r->plan;
  int (*run)(ranker *, const double *, const double *, double *) = rank_portably;
#ifdef HAS_V3
  if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
    run = rank_v3;
#endif
  (void)portable;
  for (int64_t p = 0; p < problems; p++) {
    const double *own_rows = rows + p * plan->rows * plan->tiles;
    const int failed = run(r, constants + p * plan->constants, own_rows, scores + p * stride);
    if (failed) return failed;
  }
  return CKH_RANK_OK;
}
