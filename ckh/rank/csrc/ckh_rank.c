/* Ranks a pool of candidates with a forest by partial evaluation; ckh/rank/plan.py describes what it is given. Computes
   what a problem enters of the features before that, by the steps that ckh/rank/program.py lists.

   A state is a node, a bit set of tiles and a set of variants. A test that the problem decides moves it on; any other
   may split it in two. Sets of variants are numbered as they arise, since there are few. Where two sides meet again,
   the smaller one gets the difference of their values, and the state goes on with the larger one's: most tiles are
   never touched. That is exact, since leaf values are integers, added modulo 2^64. Those that need two integers are
   walked twice, for the high parts and for the low ones.

   C11 without extensions that are not guarded. No global state: any number of threads may rank, each with what it opened. */
#include <math.h>
#include <stdint.h>
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
#ifdef USE512
#define V3 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,popcnt,lzcnt,prefer-vector-width=512")))
#else
#define V3 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#endif
#endif

enum { ABI = 3 };
enum { LANES = 4 }; /* that are added at once */
enum { OK = 0, NO_MEMORY = 1, TOO_DEEP = 2 };
enum { CONSTANT = 0, TILE = 1, VARIANT = 2, MIXED = 3 };                            /* kinds of families */
enum { GO_RIGHT = 0, GO_LEFT = 1, SPLIT_TILES = 2, SPLIT_VARIANTS = 3 };            /* low bits of actions */
enum { CATEGORICAL = 1, DEFAULT_LEFT = 2, MISSING_ZERO = 4, MISSING_NAN = 8 };      /* flags of families */
#define ZERO_BOUND ((double)1e-35f)
#define MOST_SETS_BYTES ((size_t)1 << 25)
#ifndef MOST_SETS
#define MOST_SETS 64 /* that are kept at least, whatever their size */
#endif

typedef struct {
  int32_t trees, families, tests, leaves_count, high_exponent, low_exponent;
  const int32_t *roots, *nodes, *family, *sets;
  const int64_t *leaves;
  const double *thresholds;
  const uint32_t *words;
} ckh_rank_forest;

typedef struct {
  int32_t tiles, variants, candidates, constants, rows, static_masks, all_masks, variant_tests;
  const int32_t *family, *class_starts, *tile_of, *variant_of;
  const uint64_t *masks, *variant_masks, *class_masks;
} ckh_rank_plan;

/* A test whose masks over tiles differ by class of variants: the first class's, the step to the next one's, and the
   family, of which some classes may be merged. */
typedef struct {
  uint32_t mask, step;
  int32_t family;
} mixed_test;

/* The classes of a mixed family, less those that do as an earlier one does: where they begin among all, and how many. */
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

typedef struct {
  const ckh_rank_forest *forest;
  const ckh_rank_plan *plan;
  size_t tile_words, variant_words, row; /* row: of sums, with what makes it a multiple of LANES */
  uint32_t *action;    /* of each test: what to do, and with which mask */
  uint64_t *scratch;   /* two sets of variants */
  uint32_t *splitting; /* the same, where no problem decides */
  int32_t *at;         /* of each tile: a position */
  mixed_test *mixed;
  merged_classes *merged; /* of each family */
  int32_t *merged_class;  /* the number of the class whose masks count */
  uint64_t *merged_masks; /* the variants that are in it */
  uint64_t *masks;
  variant_set *sets;
  uint64_t *members;
  uint64_t *sums; /* of each set: a row by tile */
  uint64_t *high; /* of each candidate, while the low parts are added; NULL if there are none */
  const uint64_t *cells; /* the trees: `parts` of which one is added now */
  uint64_t *parts[2];
  int32_t *roots;
  int32_t set_count, set_room, set_limit, full; /* full: the set of all variants */
  int32_t *by_members; /* hash table of the sets */
  int32_t *touched;    /* by size: the first set that got any value */
  split *splits;       /* hash table of what tests make of sets */
  size_t members_room, splits_room, splits_count;
  frame *frames;
  uint64_t *tiles; /* bit sets of the frames: all tiles, then left and right of each */
  size_t frames_room;
} state;

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

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

static size_t words_for(int32_t count) { return ((size_t)count + 63) / 64; }

static void *grown(void *old, size_t count, size_t size) {
  return count > SIZE_MAX / 2 / size ? NULL : realloc(old, count * size + 8);
}

static void fill_ones(uint64_t *words, int32_t count) {
  memset(words, 0xff, (size_t)count / 64 * 8);
  if (count % 64) words[count / 64] = ((uint64_t)1 << count % 64) - 1;
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

static int in_set(const ckh_rank_forest *forest, int32_t test, double x) {
  const int32_t *set = forest->sets + 2 * (size_t)test;
  int64_t category;
  if (!(x > -1 && x < 2147483648.0)) return 0;
  category = (int64_t)x;
  return category >> 5 < set[1] && (forest->words[set[0] + (category >> 5)] >> (category & 31) & 1);
}

static void decide_constant(state *s, const int32_t *family, double x) {
  const ckh_rank_forest *forest = s->forest;
  const int32_t first = family[2], count = family[3];
  int32_t i = 0;
  if (family[1] & CATEGORICAL) {
    for (; i < count; i++) s->action[first + i] = in_set(forest, first + i, x) ? GO_LEFT : GO_RIGHT;
  } else {
    const int32_t at = position(forest->thresholds + first, count, family[1], x);
    for (; i < at; i++) s->action[first + i] = GO_RIGHT;
    for (; i < count; i++) s->action[first + i] = GO_LEFT;
  }
}

/* Masks of a family's tests over the tiles. Those before `low` hold for no tile, and those from `high` on for all; of
   these no masks are made. */
static void decide_row(state *s, const int32_t *family, const double *row, uint64_t *masks, int32_t *low,
                       int32_t *high) {
  const size_t words = s->tile_words;
  const int32_t first = family[2], count = family[3], tiles = s->plan->tiles;
  if (family[1] & CATEGORICAL) {
    memset(masks, 0, (size_t)count * words * 8);
    for (int32_t i = 0; i < count; i++)
      for (int32_t t = 0; t < tiles; t++)
        masks[(size_t)i * words + (size_t)t / 64] |= (uint64_t)in_set(s->forest, first + i, row[t]) << t % 64;
    *low = 0;
    *high = count;
    return;
  }
  *low = count;
  *high = 0;
  for (int32_t t = 0; t < tiles; t++) {
    int32_t at = t && row[t] == row[t - 1] ? s->at[t - 1]
                                           : position(s->forest->thresholds + first, count, family[1], row[t]);
    s->at[t] = at;
    if (at < *low) *low = at;
    if (at > *high) *high = at;
  }
}

static void fill_row(state *s, uint64_t *masks, int32_t low, int32_t high) {
  const size_t words = s->tile_words;
  memset(masks + (size_t)low * words, 0, (size_t)(high - low) * words * 8);
  for (int32_t t = 0; t < s->plan->tiles; t++)
    if (s->at[t] < high) masks[(size_t)s->at[t] * words + (size_t)t / 64] |= (uint64_t)1 << t % 64;
  for (size_t i = ((size_t)low + 1) * words; i < (size_t)high * words; i++) masks[i] |= masks[i - words];
}

/* Merge the classes of variants for which all tests of a mixed family do the same. */
static void merge_classes(state *s, int32_t f) {
  const int32_t *place = s->plan->family + 4 * (size_t)f, *starts = s->plan->class_starts + place[3];
  const size_t words = s->variant_words;
  const size_t size = (size_t)s->forest->family[4 * (size_t)f + 3] * s->tile_words;
  const uint64_t *masks = s->masks + (size_t)place[2] * s->tile_words;
  int32_t *of = s->merged_class + s->merged[f].first, count = 0;
  uint64_t *variants = s->merged_masks + (size_t)s->merged[f].first * words;
  for (int32_t c = 0; c < starts[1] - starts[0]; c++) {
    const uint64_t *own = s->plan->class_masks + (size_t)(starts[0] + c) * words;
    int32_t e = 0;
    while (e < count && memcmp(masks + (size_t)of[e] * size, masks + (size_t)c * size, size * 8)) e++;
    if (e == count) {
      of[count++] = c;
      memset(variants + (size_t)e * words, 0, words * 8);
    }
    for (size_t w = 0; w < words; w++) variants[(size_t)e * words + w] |= own[w];
  }
  s->merged[f].count = count;
}

/* A family over tiles: what its tests do, and their masks, class by class. */
static void decide_family(state *s, int32_t f, const double *rows) {
  const int32_t *family = s->forest->family + 4 * (size_t)f, *place = s->plan->family + 4 * (size_t)f;
  const int32_t *starts = s->plan->class_starts + (place[0] == MIXED ? place[3] : 0);
  const int32_t classes = place[0] == MIXED ? starts[1] - starts[0] : 1, count = family[3], first = family[2];
  int32_t low = count, high = 0, i = 0;
  for (int32_t c = 0; c < classes; c++) {
    uint64_t *masks = s->masks + ((size_t)place[2] + (size_t)c * (size_t)count) * s->tile_words;
    int32_t own_low, own_high;
    decide_row(s, family, rows + (size_t)(place[1] + c) * (size_t)s->plan->tiles, masks, &own_low, &own_high);
    if (!(family[1] & CATEGORICAL)) {
      if (classes > 1) /* other classes may make a test split of which this one needs no mask */
        fill_row(s, masks, 0, count);
      else if (own_low < own_high)
        fill_row(s, masks, own_low, own_high);
    }
    if (own_low < low) low = own_low;
    if (own_high > high) high = own_high;
  }
  if (place[0] == MIXED) merge_classes(s, f);
  for (; i < low; i++) s->action[first + i] = GO_RIGHT;
  for (; i < high; i++) s->action[first + i] = s->splitting[first + i];
  for (; i < count; i++) s->action[first + i] = GO_LEFT;
}

static void decide(state *s, const double *constants, const double *rows) {
  for (int32_t f = 0; f < s->forest->families; f++) {
    const int32_t *family = s->forest->family + 4 * (size_t)f, *place = s->plan->family + 4 * (size_t)f;
    if (place[0] == CONSTANT)
      decide_constant(s, family, constants[place[1]]);
    else if (place[1] >= 0)
      decide_family(s, f, rows);
  }
}

/* What a mask does to everything: GO_LEFT, GO_RIGHT or, if it splits it, `otherwise`. */
static uint32_t by_mask(const uint64_t *mask, int32_t count, uint32_t otherwise) {
  int32_t all = 0;
  for (size_t w = 0; w < words_for(count); w++) all += ones(mask[w], 0);
  return all == 0 ? GO_RIGHT : all == count ? GO_LEFT : otherwise;
}

/* What tests do that no problem decides. */
static void set_actions(state *s) {
  const ckh_rank_plan *plan = s->plan;
  uint32_t mixed = (uint32_t)plan->variant_tests;
  for (int32_t f = 0; f < s->forest->families; f++) {
    const int32_t *family = s->forest->family + 4 * (size_t)f, *place = plan->family + 4 * (size_t)f;
    if (place[0] == MIXED && place[1] < 0) merge_classes(s, f);
    for (int32_t i = 0; i < family[3]; i++) {
      uint32_t *action = s->splitting + family[2] + i;
      const uint32_t mask = (uint32_t)(place[2] + i);
      *action = GO_RIGHT;
      if (place[0] == TILE) {
        *action = SPLIT_TILES | mask << 2;
        if (place[1] < 0) *action = by_mask(s->masks + mask * s->tile_words, plan->tiles, *action);
      }
      if (place[0] == VARIANT)
        *action = by_mask(plan->variant_masks + mask * s->variant_words, plan->variants, SPLIT_VARIANTS | mask << 2);
      if (place[0] == MIXED) {
        s->mixed[mixed - (uint32_t)plan->variant_tests] = (mixed_test){mask, (uint32_t)family[3], f};
        *action = SPLIT_VARIANTS | mixed++ << 2;
      }
    }
  }
  s->action[s->forest->tests] = GO_RIGHT; /* there may be no other */
  memcpy(s->action, s->splitting, (size_t)s->forest->tests * sizeof *s->action);
}

/* ---- sets of variants ---- */

static int grow_table(state *s) {
  const size_t room = s->members_room ? s->members_room * 2 : 256;
  int32_t *table = grown(s->by_members, room, sizeof *table);
  if (!table) return NO_MEMORY;
  s->by_members = table;
  s->members_room = room;
  memset(table, 0xff, room * sizeof *table);
  for (int32_t e = 0; e < s->set_count; e++) {
    uint64_t hash = 0;
    for (size_t w = 0; w < s->variant_words; w++) hash = mix(hash ^ s->members[(size_t)e * s->variant_words + w]);
    while (table[hash & (room - 1)] >= 0) hash++;
    table[hash & (room - 1)] = e;
  }
  return OK;
}

/* The number of a set, which it gets if it has none; -1 if it is empty, -2 without memory. */
static int32_t number_of(state *s, const uint64_t *members) {
  const size_t words = s->variant_words, row = s->row;
  uint64_t hash = 0;
  int32_t size = 0;
  for (size_t w = 0; w < words; w++) {
    hash = mix(hash ^ members[w]);
    size += ones(members[w], 0);
  }
  if (!size) return -1;
  if ((size_t)s->set_count * 2 >= s->members_room && grow_table(s)) return -2;
  for (;; hash++) {
    const int32_t e = s->by_members[hash & (s->members_room - 1)];
    if (e < 0) break;
    if (!memcmp(s->members + (size_t)e * words, members, words * 8)) return e;
  }
  if (s->set_count == s->set_room) {
    const size_t room = (size_t)s->set_room * 2 + 64;
    variant_set *sets;
    uint64_t *all;
    uint64_t *sums;
    if (!(sets = grown(s->sets, room, sizeof *sets))) return -2;
    s->sets = sets;
    if (!(all = grown(s->members, room * words, 8))) return -2;
    s->members = all;
    if (!(sums = grown(s->sums, room * row, sizeof *sums))) return -2;
    s->sums = sums;
    s->set_room = (int32_t)room;
  }
  memcpy(s->members + (size_t)s->set_count * words, members, words * 8);
  memset(s->sums + (size_t)s->set_count * row, 0, row * sizeof *s->sums);
  s->sets[s->set_count] = (variant_set){size, -1, -1, UNTOUCHED, 0};
  s->by_members[hash & (s->members_room - 1)] = s->set_count;
  return s->set_count++;
}

/* Forget all sets but each variant alone, and all of them, which are the first ones. */
static int first_sets(state *s, uint64_t *scratch) {
  s->set_count = 0;
  memset(s->touched, 0xff, ((size_t)s->plan->variants + 1) * sizeof *s->touched);
  s->splits_count = 0;
  if (s->by_members) memset(s->by_members, 0xff, s->members_room * sizeof *s->by_members);
  if (s->splits) memset(s->splits, 0xff, s->splits_room * sizeof *s->splits);
  for (int32_t v = 0; v <= s->plan->variants; v++) {
    memset(scratch, 0, s->variant_words * 8);
    if (v < s->plan->variants)
      scratch[v / 64] = (uint64_t)1 << v % 64;
    else
      fill_ones(scratch, v);
    if ((s->full = number_of(s, scratch)) == -2) return NO_MEMORY;
  }
  return OK;
}

static int grow_splits(state *s) {
  const size_t room = s->splits_room ? s->splits_room * 2 : 1024;
  split *table = grown(NULL, room, sizeof *table);
  if (!table) return NO_MEMORY;
  memset(table, 0xff, room * sizeof *table);
  for (size_t i = 0; i < s->splits_room; i++) {
    const split *old = s->splits + i;
    uint64_t hash = mix(old->key);
    if (old->key == UINT64_MAX) continue;
    while (table[hash & (room - 1)].key != UINT64_MAX) hash++;
    table[hash & (room - 1)] = *old;
  }
  free(s->splits);
  s->splits = table;
  s->splits_room = room;
  return OK;
}

/* What becomes of a set with these of its members on the left, and the rest on the right. */
static int part(state *s, int32_t set, const uint64_t *mask, uint64_t *scratch, int32_t *left, int32_t *right) {
  const size_t words = s->variant_words;
  for (size_t w = 0; w < words; w++) scratch[w] = s->members[(size_t)set * words + w] & mask[w];
  *left = number_of(s, scratch);
  for (size_t w = 0; w < words; w++) scratch[w] = s->members[(size_t)set * words + w] & ~mask[w];
  *right = number_of(s, scratch);
  if (*left == -2 || *right == -2) return NO_MEMORY;
  if (*left >= 0 && *right >= 0 && s->sets[set].left < 0) {
    s->sets[set].left = *left;
    s->sets[set].right = *right;
  }
  return OK;
}

static int part_by_test(state *s, int32_t set, uint32_t test, uint64_t *scratch, int32_t *left, int32_t *right) {
  const uint64_t key = (uint64_t)set << 32 | test;
  uint64_t hash = mix(key);
  if (s->splits_count * 2 >= s->splits_room && grow_splits(s)) return NO_MEMORY;
  for (;; hash++) {
    split *known = s->splits + (hash & (s->splits_room - 1));
    if (known->key == key) {
      *left = known->left;
      *right = known->right;
      return OK;
    }
    if (known->key == UINT64_MAX) {
      if (part(s, set, s->plan->variant_masks + (size_t)test * s->variant_words, scratch, left, right)) return NO_MEMORY;
      *known = (split){key, *left, *right};
      s->splits_count++;
      return OK;
    }
  }
}

/* The members of a set for which a mixed test does the same to these tiles as for the first of them: to `scratch`.
   Returns that test's mask over tiles. */
static const uint64_t *alike(const state *s, int32_t set, const mixed_test *test, const uint64_t *tiles,
                             uint64_t *scratch) {
  const size_t words = s->variant_words;
  const uint64_t *members = s->members + (size_t)set * words, *mask = NULL;
  const merged_classes *merged = s->merged + test->family;
  memset(scratch, 0, words * 8);
  for (int32_t e = merged->first; e < merged->first + merged->count; e++) {
    const uint64_t *variants = s->merged_masks + (size_t)e * words;
    const uint64_t *own = s->masks + (test->mask + (size_t)s->merged_class[e] * test->step) * s->tile_words;
    uint64_t any = 0, differs = 0;
    for (size_t w = 0; w < words; w++) any |= members[w] & variants[w];
    if (!any) continue;
    if (!mask) mask = own;
    for (size_t w = 0; w < s->tile_words; w++) differs |= (own[w] ^ mask[w]) & tiles[w];
    if (!differs)
      for (size_t w = 0; w < words; w++) scratch[w] |= members[w] & variants[w];
  }
  return mask;
}

/* ---- walking down ---- */

INLINE void touch(state *s, int32_t set) {
  variant_set *touched = s->sets + set;
  if (touched->next != UNTOUCHED) return;
  touched->next = s->touched[touched->size];
  s->touched[touched->size] = set;
}

/* All bits or none of LANES words, for each set of them. */
#define ALL(b, lane) (0 - (uint64_t)((b) >> (lane) & 1))
#define SPREAD(b) {ALL(b, 0), ALL(b, 1), ALL(b, 2), ALL(b, 3)}
#define SPREAD4(b) SPREAD(b), SPREAD(b + 1), SPREAD(b + 2), SPREAD(b + 3)
static const uint64_t spread[16][LANES] = {SPREAD4(0), SPREAD4(4), SPREAD4(8), SPREAD4(12)};

/* Adds to the tiles of a set of variants. */
INLINE void add(state *s, int32_t set, const uint64_t *tiles, int32_t count, uint64_t x, size_t words) {
  uint64_t *sums = s->sums + (size_t)set * s->row;
  if (!x) return;
  touch(s, set);
  if (count == s->plan->tiles) {
    s->sets[set].all += x;
    return;
  }
  if (words > 4 && 16 * (int64_t)count < s->plan->tiles) { /* few of many */
    for (size_t w = 0; w < words; w++, sums += 64)
      for (uint64_t rest = tiles[w]; rest; rest &= rest - 1) sums[lowest_bit(rest)] += x;
    return;
  }
  for (size_t w = 0, rest = s->row; w < words; w++, sums += 64, rest -= 64) { /* without a branch that asks who is in */
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

INLINE uint64_t leaf(const state *s, int32_t node) { return s->cells[(size_t)~node]; }

static int grow_frames(state *s) {
  const size_t room = s->frames_room * 2 + 32;
  frame *frames;
  uint64_t *tiles;
  if (room > INT32_MAX / 4) return TOO_DEEP;
  if (!(frames = grown(s->frames, room, sizeof *frames))) return NO_MEMORY;
  s->frames = frames;
  if (!(tiles = grown(s->tiles, (2 * room + 1) * s->tile_words, 8))) return NO_MEMORY;
  s->tiles = tiles;
  s->frames_room = room;
  return OK;
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

INLINE int32_t child(uint64_t cell, int32_t node, const int is_left) {
  const int32_t below = node + (is_left ? 1 : (int32_t)(cell >> 32));
  return below ^ -(int32_t)(cell >> is_left & 1);
}

/* The value of a state of which the halves have these: that of the larger half, once the smaller one got the rest. */
INLINE uint64_t joined(state *s, const frame *f, uint64_t second, size_t words) {
  const int side = f->smaller;
  const uint64_t is_first = (uint64_t)(side ^ f->first) - 1; /* all bits, or none: either is as likely */
  const uint64_t more = ((f->value - second) ^ ~is_first) - ~is_first;
  const uint64_t value = second ^ ((second ^ f->value) & ~is_first);
  add(s, f->set[side], s->tiles + (size_t)f->at[side] * words, f->count[side], more, words);
  return value;
}

/* Adds a tree's values, but for what all candidates get, which goes to `common`. */
INLINE int walk_tree(state *s, int32_t node, uint64_t *scratch, uint64_t *common, const size_t words,
                     const int is_v3) {
  const uint64_t *cells = s->cells;
  const uint32_t *action = s->action;
  int32_t set = s->full, count = s->plan->tiles, at = 0; /* `at`: which bit set of the frames the state has */
  size_t depth = 0;
  node = decided(cells, action, node);
  for (;;) {
    uint64_t x;
    while (node >= 0) {
      const uint64_t here = cells[node];
      const uint32_t act = action[(uint32_t)here >> 2], test = act >> 2;
      const uint64_t *mask = NULL; /* of tiles, if they are what is split */
      int32_t left = child(here, node, 1), right = child(here, node, 0);
      frame *f;
      if (depth == s->frames_room) {
        const int failed = grow_frames(s);
        if (failed) return failed;
      }
      f = s->frames + depth;
      f->set[0] = f->set[1] = set;
      f->at[0] = f->at[1] = at;
      f->count[0] = f->count[1] = count;
      if ((act & 3) == SPLIT_TILES) {
        mask = s->masks + test * words;
      } else if (test < (uint32_t)s->plan->variant_tests) {
        if (part_by_test(s, set, test, scratch, f->set, f->set + 1)) return NO_MEMORY;
        if (f->set[0] < 0 || f->set[1] < 0) {
          node = decided(cells, action, f->set[0] < 0 ? right : left);
          continue;
        }
        f->smaller = s->sets[f->set[0]].size >= s->sets[f->set[1]].size;
      } else {
        mask = alike(s, set, s->mixed + (test - (uint32_t)s->plan->variant_tests), s->tiles + (size_t)at * words, scratch);
        if (part(s, set, scratch, scratch + s->variant_words, f->set, f->set + 1)) return NO_MEMORY;
        if (f->set[1] >= 0) { /* the same test again, for either half */
          mask = NULL;
          left = right = node;
          f->smaller = s->sets[f->set[0]].size >= s->sets[f->set[1]].size;
        } else {
          f->set[1] = set;
        }
      }
      if (mask) {
        const uint64_t *tiles = s->tiles + (size_t)at * words;
        uint64_t *in_left = s->tiles + (2 * depth + 1) * words, *in_right = in_left + words;
        int32_t left_count = 0;
        for (size_t w = 0; w < words; w++) {
          in_left[w] = tiles[w] & mask[w];
          in_right[w] = tiles[w] & ~mask[w];
          left_count += ones(in_left[w], is_v3);
        }
        if (left_count == 0 || left_count == count) {
          node = decided(cells, action, left_count ? left : right);
          continue;
        }
        f->at[0] = (int32_t)(2 * depth) + 1;
        f->at[1] = f->at[0] + 1;
        f->count[0] = left_count;
        f->count[1] = count - left_count;
        f->smaller = 2 * left_count >= count;
      }
      decide_both(cells, action, &left, &right);
      f->first = right < 0; /* a leaf comes first */
      f->first_done = (left | right) < 0;
      if ((left & right) < 0) { /* two leaves: no need to come back */
        f->value = leaf(s, right);
        x = joined(s, f, leaf(s, left), words);
        goto up;
      }
      if (f->first_done) f->value = leaf(s, f->first ? right : left);
      f->node = right;
      node = right < 0 || !f->first_done ? left : right;
      {
        const int side = f->first ^ f->first_done; /* that comes now */
        set = f->set[side];
        at = f->at[side];
        count = f->count[side];
      }
      depth++;
    }
    x = leaf(s, node);
  up:
    for (;;) {
      frame *f;
      if (!depth) {
        *common += x;
        return OK;
      }
      f = s->frames + depth - 1;
      if (!f->first_done) {
        f->first_done = 1;
        f->value = x;
        node = f->node;
        set = f->set[1];
        at = f->at[1];
        count = f->count[1];
        break;
      }
      x = joined(s, f, x, words);
      depth--;
    }
  }
}

/* ---- from sums of sets to scores ---- */

INLINE void push(state *s, const variant_set *from, int32_t to) {
  const uint64_t *a = s->sums + (size_t)(from - s->sets) * s->row;
  uint64_t *b = s->sums + (size_t)to * s->row;
  for (size_t t = 0; t < s->row; t += LANES)
    for (size_t lane = t; lane < t + LANES; lane++) b[lane] += a[lane];
  touch(s, to);
  s->sets[to].all += from->all;
}

INLINE void push_to_members(state *s, const variant_set *from) {
  const uint64_t *members = s->members + (size_t)(from - s->sets) * s->variant_words;
  for (size_t w = 0; w < s->variant_words; w++)
    for (uint64_t rest = members[w]; rest; rest &= rest - 1) push(s, from, (int32_t)w * 64 + lowest_bit(rest));
}

/* Hand the sums of sets down to their parts, the largest first, until each variant alone has its own. */
INLINE void hand_down(state *s) {
  for (int32_t size = s->plan->variants; size > 1; size--) {
    for (int32_t e = s->touched[size]; e >= 0;) {
      variant_set *set = s->sets + e;
      if (set->left >= 0) {
        push(s, set, set->left);
        push(s, set, set->right);
      } else {
        push_to_members(s, set);
      }
      set->all = 0;
      memset(s->sums + (size_t)e * s->row, 0, s->row * sizeof *s->sums);
      e = set->next;
      set->next = UNTOUCHED;
    }
    s->touched[size] = -1;
  }
}

/* Have a tree brought near while those before it are walked: a quarter of the time, when the forest is in no cache. */
INLINE void fetch(const state *s, int32_t tree) {
#if defined(__GNUC__)
  if (tree < s->forest->trees) {
    const size_t end = (size_t)s->roots[tree + 1];
    for (size_t at = (size_t)s->roots[tree]; at < end; at += 8) __builtin_prefetch(s->cells + at);
  }
#else
  (void)s;
  (void)tree;
#endif
}

INLINE int walk_forest(state *s, uint64_t *scratch, uint64_t *common, const size_t words, const int is_v3) {
  fill_ones(s->tiles, s->plan->tiles);
  for (int32_t tree = 0; tree < s->forest->trees; tree++) {
    fetch(s, tree + 2);
    const int failed = walk_tree(s, s->forest->roots[tree] < 0 ? ~s->roots[tree] : s->roots[tree], scratch, common, words, is_v3);
    if (failed) return failed;
    if (s->set_count > s->set_limit) { /* keep what belongs to single variants, forget the other sets */
      const size_t kept = (size_t)s->plan->variants;
      uint64_t *all, *sums = malloc(kept * s->row * sizeof *sums + 8);
      if (!sums) return NO_MEMORY;
      if (!(all = malloc(kept * sizeof *all + 8))) {
        free(sums);
        return NO_MEMORY;
      }
      hand_down(s);
      memcpy(sums, s->sums, kept * s->row * sizeof *sums);
      for (size_t v = 0; v < kept; v++) all[v] = s->sets[v].all;
      const int no_memory = first_sets(s, scratch);
      if (!no_memory) {
        memcpy(s->sums, sums, kept * s->row * sizeof *sums);
        for (size_t v = 0; v < kept; v++) s->sets[v].all = all[v];
      }
      free(all);
      free(sums);
      if (no_memory) return NO_MEMORY;
    }
  }
  return OK;
}

INLINE uint64_t sum_of(const state *s, int32_t candidate, uint64_t common) {
  const int32_t variant = s->plan->variant_of[candidate];
  const size_t at = (size_t)variant * s->row + (size_t)s->plan->tile_of[candidate];
  return s->sums[at] + s->sets[variant].all + common;
}

INLINE void keep_high(state *s, uint64_t common) {
  for (int32_t c = 0; c < s->plan->candidates; c++) s->high[c] = sum_of(s, c, common);
}

INLINE void write_scores(const state *s, uint64_t common, double *scores) {
  const int shift = s->forest->high_exponent - s->forest->low_exponent;
  const uint64_t below = ((uint64_t)1 << shift) - 1, sign = (uint64_t)1 << 63;
  const double unit = ldexp(1, s->forest->high_exponent), low_unit = ldexp(1, s->forest->low_exponent);
  for (int32_t c = 0; c < s->plan->candidates; c++) {
    uint64_t high = sum_of(s, c, common), low = 0;
    if (s->high) {
      low = high;
      high = s->high[c] + ((low ^ sign) >> shift) - (sign >> shift); /* rounded down, also if negative */
    }
    const double whole = high & sign ? -(double)(~high + 1) : (double)high;
    scores[c] = whole * unit + (double)(low & below) * low_unit;
  }
}

/* Forget what single variants got. */
static void clear(state *s) {
  for (int32_t v = 0; v < s->plan->variants; v++) {
    s->sets[v].all = 0;
    s->sets[v].next = UNTOUCHED;
  }
  s->touched[1] = -1;
  memset(s->sums, 0, (size_t)s->plan->variants * s->row * sizeof *s->sums);
}

#define WALK(words) walk_forest(s, s->scratch, &common, words, is_v3)

INLINE int rank(state *s, const double *constants, const double *rows, double *scores, const int is_v3) {
  decide(s, constants, rows);
  for (int part = s->high ? 0 : 1; part < 2; part++) {
    uint64_t common = 0;
    int failed;
    s->cells = s->parts[s->high ? part : 0];
    switch (s->tile_words) {
      case 1: failed = WALK(1); break;
      case 2: failed = WALK(2); break;
      case 3: failed = WALK(3); break;
      case 4: failed = WALK(4); break;
      default: failed = WALK(s->tile_words);
    }
    if (failed) return failed;
    hand_down(s);
    if (part)
      write_scores(s, common, scores);
    else
      keep_high(s, common);
    clear(s);
  }
  return OK;
}

static int rank_portably(state *s, const double *constants, const double *rows, double *scores) {
  return rank(s, constants, rows, scores, 0);
}
#ifdef HAS_V3
V3 static int rank_v3(state *s, const double *constants, const double *rows, double *scores) {
  return rank(s, constants, rows, scores, 1);
}
#endif

static int has_low_parts(const ckh_rank_forest *forest) {
  for (int64_t i = 0; i < forest->leaves_count; i++)
    if (forest->leaves[2 * i + 1]) return 1;
  return 0;
}

/* The trees in depth-first order, in cells: a node has what is to its right (the rest is next to it) in the upper
   half, and in the lower one its test and, in the two lowest bits, whether a leaf is to its right and to its left. A leaf
   has its value. */
static int lay_out(state *s, int part) {
  const ckh_rank_forest *forest = s->forest;
  const size_t room = (size_t)forest->leaves_count * 2 + 2; /* no tree has more nodes than leaves */
  uint64_t *cells = s->parts[part] = grown(NULL, room, sizeof *cells);
  int32_t at = 1, (*stack)[2] = grown(NULL, room, sizeof *stack); /* what is to be laid out, and whose right it is */
  if (!cells || !stack) {
    free(stack);
    return NO_MEMORY;
  }
  cells[0] = 0; /* what is looked at in place of a leaf */
  for (int32_t tree = 0; tree < forest->trees; tree++) {
    size_t depth = 1;
    s->roots[tree] = at;
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
  s->roots[forest->trees] = at;
  free(stack);
  return OK;
}

static int prepare(state *s) {
  const ckh_rank_plan *plan = s->plan;
  size_t mixed = 0, classes = 0, per_set;
  if (!(s->merged = grown(NULL, (size_t)s->forest->families, sizeof *s->merged))) return NO_MEMORY;
  for (int32_t f = 0; f < s->forest->families; f++) {
    const int32_t *place = plan->family + 4 * (size_t)f;
    s->merged[f] = (merged_classes){(int32_t)classes, 0};
    if (place[0] != MIXED) continue;
    mixed += (size_t)s->forest->family[4 * (size_t)f + 3];
    classes += (size_t)(plan->class_starts[place[3] + 1] - plan->class_starts[place[3]]);
  }
  if (classes > INT32_MAX) return NO_MEMORY;
  s->tile_words = words_for(plan->tiles);
  s->variant_words = words_for(plan->variants);
  s->row = ((size_t)plan->tiles + LANES - 1) / LANES * LANES;
  per_set = s->row * 8 + s->variant_words * 8 + sizeof(variant_set);
  s->set_limit = plan->variants + MOST_SETS;
  if (MOST_SETS && MOST_SETS_BYTES / per_set > MOST_SETS) s->set_limit += (int32_t)(MOST_SETS_BYTES / per_set);
  s->action = grown(NULL, (size_t)s->forest->tests + 1, sizeof *s->action);
  s->splitting = grown(NULL, (size_t)s->forest->tests, sizeof *s->splitting);
  s->at = grown(NULL, (size_t)plan->tiles, sizeof *s->at);
  s->mixed = grown(NULL, mixed, sizeof *s->mixed);
  s->merged_class = grown(NULL, classes, sizeof *s->merged_class);
  s->merged_masks = grown(NULL, classes * s->variant_words, 8);
  s->masks = grown(NULL, (size_t)plan->all_masks * s->tile_words, 8);
  s->scratch = grown(NULL, 2 * s->variant_words, 8);
  s->touched = grown(NULL, (size_t)plan->variants + 1, sizeof *s->touched);
  if (!s->action || !s->splitting || !s->at || !s->mixed || !s->merged_class || !s->merged_masks) return NO_MEMORY;
  if (!s->masks || !s->touched || !s->scratch) return NO_MEMORY;
  if (!(s->roots = grown(NULL, (size_t)s->forest->trees + 1, sizeof *s->roots))) return NO_MEMORY;
  if (lay_out(s, 0)) return NO_MEMORY;
  if (has_low_parts(s->forest) && lay_out(s, 1)) return NO_MEMORY;
  if (s->parts[1] && !(s->high = grown(NULL, (size_t)plan->candidates, sizeof *s->high))) return NO_MEMORY;
  memcpy(s->masks, plan->masks, (size_t)plan->static_masks * s->tile_words * 8);
  set_actions(s);
  if (grow_frames(s)) return NO_MEMORY;
  return first_sets(s, s->scratch);
}

/* ---- features ---- */

/* NumPy's operations on numbers; ckh/rank/recording.py lists them in this order. */
enum { COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, MAXIMUM, MINIMUM, LESS, LESS_EQUAL, GREATER };
enum { GREATER_EQUAL = GREATER + 1, EQUAL, NOT_EQUAL, AND, OR, NOT, NEGATIVE, CEIL, FLOOR, ABSOLUTE, IS_NAN, WHERE };
enum { TRUNCATE = WHERE + 1, WHOLE_AND };

/* With the sign of the divisor, as NumPy's. */
static double remainder_of(double x, double y) {
  const double rest = fmod(x, y);
  if (y == 0) return rest;
  if (rest == 0) return copysign(0, y);
  return (y < 0) != (rest < 0) ? rest + y : rest;
}

static double floor_divided(double x, double y) {
  const double rest = fmod(x, y);
  double quotient, whole;
  if (y == 0) return x / y;
  quotient = (x - rest) / y;
  if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return copysign(0, x / y);
  whole = floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

static int64_t whole(double x) { return fabs(x) < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }

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
  const int32_t n = step[1], in_a = step[6] & 1, in_b = step[6] >> 1 & 1, in_c = step[6] >> 2 & 1;
  switch (step[0]) {
    case COPY: EACH(x);
    case ADD: EACH_OF_TWO(x + y);
    case SUBTRACT: EACH_OF_TWO(x - y);
    case MULTIPLY: EACH_OF_TWO(x * y);
    case DIVIDE: EACH_OF_TWO(x / y);
    case FLOOR_DIVIDE: EACH_OF_TWO(floor_divided(x, y));
    case REMAINDER: EACH_OF_TWO(remainder_of(x, y));
    case MAXIMUM: EACH_OF_TWO(x >= y || isnan(x) ? x : y);
    case MINIMUM: EACH_OF_TWO(x <= y || isnan(x) ? x : y);
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
    case TRUNCATE: EACH((double)whole(x));
    case WHOLE_AND: EACH_OF_TWO((double)(whole(x) & whole(y)));
    default: break;
  }
}

/* Runs steps over the registers of each problem. A step: operation, width, register to write, three registers to read
   (or, if negative, ~ a constant) and, as bits, which of these are as wide as the step and not a single number. */
void ckh_rank_compute(int64_t problems, int64_t size, double *registers, const double *constants, const int32_t *code,
                      int64_t steps);
void ckh_rank_compute(int64_t problems, int64_t size, double *registers, const double *constants, const int32_t *code,
                      int64_t steps) {
  for (int64_t p = 0; p < problems; p++, registers += size) {
    for (int64_t i = 0; i < steps; i++) {
      const int32_t *step = code + 8 * i;
      const double *of[3];
      for (int k = 0; k < 3; k++) of[k] = step[3 + k] < 0 ? constants + ~step[3 + k] : registers + step[3 + k];
      compute(step, registers + step[2], of[0], of[1], of[2]);
    }
  }
}

/* ---- the interface ---- */

void ckh_rank_close(void *opened);
void ckh_rank_close(void *opened) {
  state *s = opened;
  if (!s) return;
  free(s->action);
  free(s->splitting);
  free(s->at);
  free(s->mixed);
  free(s->merged);
  free(s->merged_class);
  free(s->merged_masks);
  free(s->masks);
  free(s->sets);
  free(s->members);
  free(s->sums);
  free(s->by_members);
  free(s->touched);
  free(s->splits);
  free(s->frames);
  free(s->tiles);
  free(s->scratch);
  free(s->high);
  free(s->roots);
  free(s->parts[0]);
  free(s->parts[1]);
  free(s);
}

int32_t ckh_rank_abi(void);
int32_t ckh_rank_abi(void) { return ABI; }

/* What ranking needs to remember of a forest and a plan, which must outlive it; one thread at a time may use it.
   NULL without memory. */
void *ckh_rank_open(const ckh_rank_forest *forest, const ckh_rank_plan *plan);
void *ckh_rank_open(const ckh_rank_forest *forest, const ckh_rank_plan *plan) {
  state *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->forest = forest;
  s->plan = plan;
  if (!prepare(s)) return s;
  ckh_rank_close(s);
  return NULL;
}

/* Scores of all candidates for each problem: scores[problem * stride + candidate].
   constants: problems x plan->constants; rows: problems x plan->rows x plan->tiles; portable: no instructions beyond
   the baseline. 0, or NO_MEMORY, or TOO_DEEP, after which it can only be closed. */
int32_t ckh_rank_scores(void *opened, int64_t problems, const double *constants, const double *rows, double *scores,
                        int64_t stride, int32_t portable);
int32_t ckh_rank_scores(void *opened, int64_t problems, const double *constants, const double *rows, double *scores,
                        int64_t stride, int32_t portable) {
  state *s = opened;
  const ckh_rank_plan *plan = s->plan;
  int (*run)(state *, const double *, const double *, double *) = rank_portably;
#ifdef HAS_V3
  if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
    run = rank_v3;
#endif
  (void)portable;
  for (int64_t p = 0; p < problems; p++) {
    const int failed = run(s, constants + p * plan->constants, rows + p * plan->rows * plan->tiles, scores + p * stride);
    if (failed) return failed;
  }
  return OK;
}
