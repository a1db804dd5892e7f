/* Ranks a pool of candidates with a forest by partial evaluation; ckh/rank/plan.py describes what it is given.

   A state is a node, a bit set of tiles and a set of variants. A test that the problem decides moves it on; any other
   may split it in two. Sets of variants are numbered as they arise, since there are few. Where two sides meet again,
   the smaller one gets the difference of their values, and the state goes on with the larger one's: most tiles are
   never touched. That is exact, since leaf values are integers (two 64-bit words, added modulo 2^64).

   C11 without extensions that are not guarded. No global state: any number of threads may rank, each with what it opened. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_V3 1
#define V3 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#endif

enum { ABI = 2 };
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

typedef struct {
  uint64_t high, low;
} value;

typedef struct {
  uint32_t mask, step;
  int32_t partition;
} mixed_test;

/* A set of variants: its size, two sets that make it up (or -1), and what all tiles got. Those of one size that got
   any value form a list: `next` is -1 at its end, and UNTOUCHED for a set that got none. */
enum { UNTOUCHED = -2 };
typedef struct {
  int32_t size, left, right, next;
  value all;
} variant_set;

typedef struct {
  uint64_t key;
  int32_t left, right;
} split;

typedef struct {
  int32_t node, set, left_set, right_set, count, left_count, right_count, at;
  uint8_t splits_tiles, left_done;
  value left;
} frame;

typedef struct {
  const ckh_rank_forest *forest;
  const ckh_rank_plan *plan;
  size_t tile_words, variant_words;
  uint32_t *action;    /* of each test: what to do, and with which mask */
  uint64_t *scratch;   /* two sets of variants */
  uint32_t *splitting; /* the same, where no problem decides */
  int32_t *at;         /* of each tile: a position */
  mixed_test *mixed;
  uint64_t *masks;
  variant_set *sets;
  uint64_t *members;
  value *sums;
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

/* A family over tiles: what its tests do, and their masks, class by class. */
static void decide_family(state *s, const int32_t *family, const int32_t *place, const double *rows) {
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
      decide_family(s, family, place, rows);
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
        s->mixed[mixed - (uint32_t)plan->variant_tests] = (mixed_test){mask, (uint32_t)family[3], place[3]};
        *action = SPLIT_VARIANTS | mixed++ << 2;
      }
    }
  }
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
  const size_t words = s->variant_words, tiles = (size_t)s->plan->tiles;
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
    value *sums;
    if (!(sets = grown(s->sets, room, sizeof *sets))) return -2;
    s->sets = sets;
    if (!(all = grown(s->members, room * words, 8))) return -2;
    s->members = all;
    if (!(sums = grown(s->sums, room * tiles, sizeof *sums))) return -2;
    s->sums = sums;
    s->set_room = (int32_t)room;
  }
  memcpy(s->members + (size_t)s->set_count * words, members, words * 8);
  memset(s->sums + (size_t)s->set_count * tiles, 0, tiles * sizeof *s->sums);
  s->sets[s->set_count] = (variant_set){size, -1, -1, UNTOUCHED, {0, 0}};
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
   `mask` becomes that test's mask over tiles. */
static void alike(const state *s, int32_t set, const mixed_test *test, const uint64_t *tiles, uint64_t *scratch,
                  const uint64_t **mask) {
  const size_t words = s->variant_words;
  const uint64_t *members = s->members + (size_t)set * words;
  const int32_t *starts = s->plan->class_starts + test->partition;
  *mask = NULL;
  memset(scratch, 0, words * 8);
  for (int32_t c = starts[0]; c < starts[1]; c++) {
    const uint64_t *class_mask = s->plan->class_masks + (size_t)c * words;
    const uint64_t *own = s->masks + (test->mask + (size_t)(c - starts[0]) * test->step) * s->tile_words;
    uint64_t any = 0, differs = 0;
    for (size_t w = 0; w < words; w++) any |= members[w] & class_mask[w];
    if (!any) continue;
    if (!*mask) *mask = own;
    for (size_t w = 0; w < s->tile_words; w++) differs |= (own[w] ^ (*mask)[w]) & tiles[w];
    if (!differs)
      for (size_t w = 0; w < words; w++) scratch[w] |= members[w] & class_mask[w];
  }
}

/* ---- walking down ---- */

INLINE void touch(state *s, int32_t set) {
  variant_set *touched = s->sets + set;
  if (touched->next != UNTOUCHED) return;
  touched->next = s->touched[touched->size];
  s->touched[touched->size] = set;
}

static value minus(value a, value b) { return (value){a.high - b.high, a.low - b.low}; }

INLINE void add(state *s, int32_t set, const uint64_t *tiles, int32_t count, value x, size_t words) {
  value *sums = s->sums + (size_t)set * (size_t)s->plan->tiles;
  if (!(x.high | x.low)) return;
  touch(s, set);
  if (count == s->plan->tiles) {
    s->sets[set].all.high += x.high;
    s->sets[set].all.low += x.low;
    return;
  }
  for (size_t w = 0; w < words; w++, sums += 64)
    for (uint64_t rest = tiles[w]; rest; rest &= rest - 1) {
      value *sum = sums + lowest_bit(rest);
      sum->high += x.high;
      sum->low += x.low;
    }
}

INLINE value leaf(const state *s, int32_t node) {
  const int64_t *parts = s->forest->leaves + 2 * (size_t)~node;
  return (value){(uint64_t)parts[0], (uint64_t)parts[1]};
}

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

/* Adds a tree's values, but for what all candidates get, which goes to `common`. */
INLINE int walk_tree(state *s, int32_t node, uint64_t *scratch, value *common, const size_t words,
                     const int is_v3) {
  const int32_t *nodes = s->forest->nodes;
  const uint32_t *action = s->action;
  int32_t set = s->full, count = s->plan->tiles;
  size_t depth = 0, at = 0; /* `at`: which bit set of the frames the state has */
  for (;;) {
    value x;
    while (node >= 0) {
      const int32_t *here = nodes + 3 * (size_t)node;
      const uint32_t act = action[here[0]];
      const uint64_t *mask;
      frame *f;
      if (act < 2) {
        node = here[2 - act];
        continue;
      }
      if (depth == s->frames_room) {
        const int failed = grow_frames(s);
        if (failed) return failed;
      }
      f = s->frames + depth;
      if ((act & 3) == SPLIT_TILES) {
        mask = s->masks + (act >> 2) * words;
      } else {
        const int is_mixed = act >> 2 >= (uint32_t)s->plan->variant_tests;
        int32_t left, right;
        if (is_mixed) {
          const mixed_test *test = s->mixed + ((act >> 2) - (uint32_t)s->plan->variant_tests);
          alike(s, set, test, s->tiles + at * words, scratch, &mask);
          if (part(s, set, scratch, scratch + s->variant_words, &left, &right)) return NO_MEMORY;
        } else if (part_by_test(s, set, act >> 2, scratch, &left, &right)) {
          return NO_MEMORY;
        }
        if (!is_mixed || right >= 0) {
          if (right < 0 || left < 0) {
            node = here[left < 0 ? 2 : 1];
            continue;
          }
          if (!is_mixed && (here[1] & here[2]) < 0) {
            const value l = leaf(s, here[1]), r = leaf(s, here[2]);
            const int more_left = s->sets[left].size >= s->sets[right].size;
            add(s, more_left ? right : left, s->tiles + at * words, count, more_left ? minus(r, l) : minus(l, r), words);
            x = more_left ? l : r;
            goto up;
          }
          f->splits_tiles = 0;
          f->left_done = 0;
          f->node = is_mixed ? node : here[2];
          f->count = count;
          f->at = (int32_t)at;
          f->left_set = left;
          f->right_set = right;
          depth++;
          set = left;
          if (!is_mixed) node = here[1];
          continue;
        }
      }
      {
        const uint64_t *tiles = s->tiles + at * words;
        uint64_t *left = s->tiles + (2 * depth + 1) * words, *right = left + words;
        int32_t left_count = 0;
        for (size_t w = 0; w < words; w++) {
          left[w] = tiles[w] & mask[w];
          right[w] = tiles[w] & ~mask[w];
          left_count += ones(left[w], is_v3);
        }
        if (left_count == 0 || left_count == count) {
          node = here[left_count ? 1 : 2];
          continue;
        }
        if ((here[1] & here[2]) < 0) { /* two leaves: no need to come back */
          const value l = leaf(s, here[1]), r = leaf(s, here[2]);
          const int more_left = 2 * left_count >= count;
          add(s, set, more_left ? right : left, more_left ? count - left_count : left_count,
              more_left ? minus(r, l) : minus(l, r), words);
          x = more_left ? l : r;
          goto up;
        }
        f->splits_tiles = 1;
        f->left_done = 0;
        f->node = here[2];
        f->set = set;
        f->left_count = left_count;
        f->right_count = count - left_count;
        at = 2 * depth + 1;
        depth++;
        count = left_count;
        node = here[1];
      }
    }
    x = leaf(s, node);
  up:
    for (;;) {
      frame *f;
      if (!depth) {
        common->high += x.high;
        common->low += x.low;
        return OK;
      }
      f = s->frames + depth - 1;
      if (!f->left_done) {
        f->left_done = 1;
        f->left = x;
        node = f->node;
        if (f->splits_tiles) {
          at = 2 * depth;
          set = f->set;
          count = f->right_count;
        } else {
          at = (size_t)f->at;
          set = f->right_set;
          count = f->count;
        }
        break;
      }
      if (f->splits_tiles) {
        const uint64_t *left = s->tiles + (2 * depth - 1) * words;
        if (f->left_count < f->right_count) {
          add(s, f->set, left, f->left_count, minus(f->left, x), words);
        } else {
          add(s, f->set, left + words, f->right_count, minus(x, f->left), words);
          x = f->left;
        }
      } else {
        const uint64_t *tiles = s->tiles + (size_t)f->at * words;
        if (s->sets[f->left_set].size < s->sets[f->right_set].size) {
          add(s, f->left_set, tiles, f->count, minus(f->left, x), words);
        } else {
          add(s, f->right_set, tiles, f->count, minus(x, f->left), words);
          x = f->left;
        }
      }
      depth--;
    }
  }
}

/* ---- from sums of sets to scores ---- */

static void push(state *s, const variant_set *from, int32_t to) {
  const size_t tiles = (size_t)s->plan->tiles;
  const value *a = s->sums + (size_t)(from - s->sets) * tiles;
  value *b = s->sums + (size_t)to * tiles;
  for (size_t t = 0; t < tiles; t++) {
    b[t].high += a[t].high;
    b[t].low += a[t].low;
  }
  touch(s, to);
  s->sets[to].all.high += from->all.high;
  s->sets[to].all.low += from->all.low;
}

static void push_to_members(state *s, const variant_set *from) {
  const uint64_t *members = s->members + (size_t)(from - s->sets) * s->variant_words;
  for (size_t w = 0; w < s->variant_words; w++)
    for (uint64_t rest = members[w]; rest; rest &= rest - 1) push(s, from, (int32_t)w * 64 + lowest_bit(rest));
}

/* Hand the sums of sets down to their parts, the largest first, until each variant alone has its own. */
static void hand_down(state *s) {
  const size_t tiles = (size_t)s->plan->tiles;
  for (int32_t size = s->plan->variants; size > 1; size--) {
    for (int32_t e = s->touched[size]; e >= 0;) {
      variant_set *set = s->sets + e;
      if (set->left >= 0) {
        push(s, set, set->left);
        push(s, set, set->right);
      } else {
        push_to_members(s, set);
      }
      set->all = (value){0, 0};
      memset(s->sums + (size_t)e * tiles, 0, tiles * sizeof *s->sums);
      e = set->next;
      set->next = UNTOUCHED;
    }
    s->touched[size] = -1;
  }
}

/* Have a tree brought near while those before it are walked: a quarter of the time, when the forest is in no cache. */
INLINE void fetch(const ckh_rank_forest *forest, int32_t tree) {
#if defined(__GNUC__)
  if (tree < forest->trees - 1 && forest->roots[tree] >= 0) {
    const int64_t root = forest->roots[tree], count = forest->roots[tree + 1] - root, leaf = root + tree;
    if (count <= 0 || count > 512) return;
    for (int64_t at = 0; at < 3 * count; at += 16) __builtin_prefetch(forest->nodes + 3 * root + at);
    if (leaf + count > forest->leaves_count) return;
    for (int64_t at = 0; at < 2 * count; at += 8) __builtin_prefetch(forest->leaves + 2 * leaf + at);
  }
#else
  (void)forest;
  (void)tree;
#endif
}

INLINE int walk_forest(state *s, uint64_t *scratch, value *common, const size_t words, const int is_v3) {
  fill_ones(s->tiles, s->plan->tiles);
  for (int32_t tree = 0; tree < s->forest->trees; tree++) {
    fetch(s->forest, tree + 2);
    const int failed = walk_tree(s, s->forest->roots[tree], scratch, common, words, is_v3);
    if (failed) return failed;
    if (s->set_count > s->set_limit) { /* keep what belongs to single variants, forget the other sets */
      const size_t kept = (size_t)s->plan->variants;
      value *all, *sums = malloc(kept * (size_t)s->plan->tiles * sizeof *sums + 8);
      if (!sums) return NO_MEMORY;
      if (!(all = malloc(kept * sizeof *all + 8))) {
        free(sums);
        return NO_MEMORY;
      }
      hand_down(s);
      memcpy(sums, s->sums, kept * (size_t)s->plan->tiles * sizeof *sums);
      for (size_t v = 0; v < kept; v++) all[v] = s->sets[v].all;
      const int no_memory = first_sets(s, scratch);
      if (!no_memory) {
        memcpy(s->sums, sums, kept * (size_t)s->plan->tiles * sizeof *sums);
        for (size_t v = 0; v < kept; v++) s->sets[v].all = all[v];
      }
      free(all);
      free(sums);
      if (no_memory) return NO_MEMORY;
    }
  }
  return OK;
}

#define WALK(words, is_v3) walk_forest(s, scratch, common, words, is_v3)
#define WALK_BY_WORDS(is_v3)                      \
  switch (s->tile_words) {                        \
    case 1: return WALK(1, is_v3);                \
    case 2: return WALK(2, is_v3);                \
    case 3: return WALK(3, is_v3);                \
    case 4: return WALK(4, is_v3);                \
    default: return WALK(s->tile_words, is_v3);   \
  }

static int walk(state *s, uint64_t *scratch, value *common) { WALK_BY_WORDS(0) }
#ifdef HAS_V3
V3 static int walk_v3(state *s, uint64_t *scratch, value *common) { WALK_BY_WORDS(1) }
#endif

static void write_scores(const state *s, value common, double *scores) {
  const ckh_rank_plan *plan = s->plan;
  const int shift = s->forest->high_exponent - s->forest->low_exponent;
  const uint64_t below = ((uint64_t)1 << shift) - 1, sign = (uint64_t)1 << 63;
  const double unit = ldexp(1, s->forest->high_exponent), low_unit = ldexp(1, s->forest->low_exponent);
  for (int32_t c = 0; c < plan->candidates; c++) {
    const int32_t v = plan->variant_of[c];
    const value *sum = s->sums + (size_t)v * (size_t)plan->tiles + plan->tile_of[c], *all = &s->sets[v].all;
    const uint64_t low = sum->low + all->low + common.low;
    const uint64_t carry = ((low ^ sign) >> shift) - (sign >> shift); /* rounded down, also if negative */
    const uint64_t high = sum->high + all->high + common.high + carry;
    const double whole = high & sign ? -(double)(~high + 1) : (double)high;
    scores[c] = whole * unit + (double)(low & below) * low_unit;
  }
}

static int prepare(state *s) {
  const ckh_rank_plan *plan = s->plan;
  size_t mixed = 0, per_set;
  for (int32_t f = 0; f < s->forest->families; f++)
    if (plan->family[4 * (size_t)f] == MIXED) mixed += (size_t)s->forest->family[4 * (size_t)f + 3];
  s->tile_words = words_for(plan->tiles);
  s->variant_words = words_for(plan->variants);
  per_set = (size_t)plan->tiles * sizeof(value) + s->variant_words * 8 + sizeof(variant_set);
  s->set_limit = plan->variants + MOST_SETS;
  if (MOST_SETS && MOST_SETS_BYTES / per_set > MOST_SETS) s->set_limit += (int32_t)(MOST_SETS_BYTES / per_set);
  s->action = grown(NULL, (size_t)s->forest->tests, sizeof *s->action);
  s->splitting = grown(NULL, (size_t)s->forest->tests, sizeof *s->splitting);
  s->at = grown(NULL, (size_t)plan->tiles, sizeof *s->at);
  s->mixed = grown(NULL, mixed, sizeof *s->mixed);
  s->masks = grown(NULL, (size_t)plan->all_masks * s->tile_words, 8);
  s->scratch = grown(NULL, 2 * s->variant_words, 8);
  s->touched = grown(NULL, (size_t)plan->variants + 1, sizeof *s->touched);
  if (!s->action || !s->splitting || !s->at || !s->mixed || !s->masks || !s->touched || !s->scratch) return NO_MEMORY;
  memcpy(s->masks, plan->masks, (size_t)plan->static_masks * s->tile_words * 8);
  set_actions(s);
  if (grow_frames(s)) return NO_MEMORY;
  return first_sets(s, s->scratch);
}

void ckh_rank_close(void *opened);
void ckh_rank_close(void *opened) {
  state *s = opened;
  if (!s) return;
  free(s->action);
  free(s->splitting);
  free(s->at);
  free(s->mixed);
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
  int (*run)(state *, uint64_t *, value *) = walk;
#ifdef HAS_V3
  if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
    run = walk_v3;
#endif
  (void)portable;
  for (int64_t p = 0; p < problems; p++) {
    value common = {0, 0};
    int failed;
    decide(s, constants + p * plan->constants, rows + p * plan->rows * plan->tiles);
    failed = run(s, s->scratch, &common);
    if (failed) return failed;
    hand_down(s);
    write_scores(s, common, scores + p * stride);
    for (int32_t v = 0; v < plan->variants; v++) {
      s->sets[v].all = (value){0, 0};
      s->sets[v].next = UNTOUCHED;
    }
    s->touched[1] = -1;
    memset(s->sums, 0, (size_t)plan->variants * (size_t)plan->tiles * sizeof *s->sums);
  }
  return OK;
}
