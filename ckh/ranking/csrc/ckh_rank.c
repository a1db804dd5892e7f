/* Ranks a pool of candidates with a forest by partial evaluation. ckh_rank.h says what it is given.

   It first decides what every test does for a problem: the same to all candidates, or a split of the tiles, or one of
   the variants. Then it walks each tree once, with all candidates. A state is a node, a bit set of places and a set of
   variants. A test that the problem decides moves it on; any other may split it in two. Where two sides meet again, the
   smaller one gets the difference of their values, and the state goes on with the larger one's: most places are never
   touched. That is exact, since leaf values are integers, added modulo 2^64. Those that need two integers are walked
   twice, for the high parts and for the low ones.

   A place is a tile or, where many problems walk the trees together, a tile for one of them. Then a test of the problem
   may split places as well, and a tree's nodes are seen once for all of them.

   How data lie. ckh_trees.c lays the trees out, ckh_tests.c has masks of tests, ckh_sets.c numbers sets of variants. A
   set of variants has a row of sums, one of each place, and apart from these what all places got; in the end sums are
   handed down until each variant alone has its own. A state that was split is a frame on a stack; in `bits`, the halves'
   bit sets are the numbers 2 * depth + 1 and 2 * depth + 2, and the one of all places is number 0.

   C11 without extensions that are not guarded. No global state: any number of threads may rank, each with what it
   opened. */
#include "ckh_rank.h"

#include "ckh_ranker.h"

#if defined(__GNUC__)
typedef uint64_t lanes __attribute__((vector_size(32), aligned(8), may_alias));
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_V3 1
#define V3 __attribute__((target("avx2,bmi,bmi2,popcnt,lzcnt")))
#endif

enum { LANES = 4 };            /* that are added at once */
enum { SIZES = 7 };            /* of problems together: powers of two up to the bits of a word */
enum { MOST_BYTES = 1 << 21 }; /* of masks and sums of as many problems: what the cache near the core holds */
#ifndef FEWEST_TOGETHER
#define FEWEST_TOGETHER 8 /* fewer are faster one by one */
#endif
#ifndef MOST_TOGETHER
#define MOST_TOGETHER 64
#endif

/* Where a walk is: a node of the cells or, if negative, ~ a leaf; a set of variants; the number of a bit set of places,
   and how many are in it; and how many splits are above. */
typedef struct {
  int32_t node, set, at, count;
  size_t depth;
} state;

/* What is opened: the trees, and what ranks 1, 2, 4 and more problems together, or a few candidates; NULL until such
   come. */
typedef struct {
  const ckh_rank_forest *forest;
  const ckh_rank_plan *plan;
  laid_trees trees;
  ranker *rankers[SIZES];
  uint8_t *held; /* of each test: for which of a few candidates it holds */
} opened_forest;

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

/* Adds to the places of a set of variants. */
INLINE void add(ranker *r, int32_t set, const uint64_t *places, int32_t count, uint64_t x, size_t words) {
  uint64_t *sums = r->sums + (size_t)set * r->row;
  if (!x) return;
  touch(r, set);
  if (count == r->places) {
    r->sets[set].all += x;
    return;
  }
  if (words > 4 && 16 * (int64_t)count < r->places) { /* few of many */
    for (size_t w = 0; w < words; w++, sums += 64)
      for (uint64_t rest = places[w]; rest; rest &= rest - 1) sums[lowest_bit(rest)] += x;
    return;
  }
  for (size_t w = 0, rest = r->row; w < words; w++, sums += 64, rest -= 64) { /* without a branch on who is in */
    uint64_t bits = places[w];
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
#if defined(__GNUC__)
  for (size_t t = 0; t < r->row; t += LANES) *(lanes *)(b + t) += *(const lanes *)(a + t);
#else
  for (size_t t = 0; t < r->row; t++) b[t] += a[t];
#endif
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
  uint64_t *bits;
  if (room > INT32_MAX / 4) return CKH_RANK_TOO_DEEP;
  if (!(frames = grown(r->frames, room, sizeof *frames))) return CKH_RANK_NO_MEMORY;
  r->frames = frames;
  if (!(bits = grown(r->bits, (2 * room + 1) * r->place_words, sizeof *bits))) return CKH_RANK_NO_MEMORY;
  r->bits = bits;
  r->frames_room = room;
  return CKH_RANK_OK;
}

/* One step down where the problem decides: whether there is none, as at a leaf. There is no branch on which it is. */
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

/* By a mask over places or, with step 0, over problems, in each of its words. */
INLINE int split_places(const ranker *r, frame *f, size_t depth, const uint64_t *mask, const size_t step,
                        const size_t words, const int is_v3) {
  const int32_t count = f->count[0];
  const uint64_t *places = r->bits + (size_t)f->at[0] * words;
  uint64_t *in_left = r->bits + (2 * depth + 1) * words, *in_right = in_left + words;
  int32_t left_count = 0;
  for (size_t w = 0; w < words; w++) {
    in_left[w] = places[w] & mask[w * step];
    in_right[w] = places[w] & ~mask[w * step];
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
  if (ckh_sets_part_by_test(r, f->set[0], test, f->set, f->set + 1)) return FAILED;
  if (f->set[0] < 0 || f->set[1] < 0) return f->set[0] < 0 ? ALL_RIGHT : ALL_LEFT;
  f->smaller = (uint8_t)smaller_side(r, f);
  return HALVES;
}

/* The halves meet a mixed test again if it does not do the same for all variants; else it splits the places. */
INLINE int split_mixed(ranker *r, frame *f, size_t depth, const mixed_test *test, const size_t words, const int is_v3) {
  const int32_t set = f->set[0];
  const uint64_t *mask = ckh_tests_alike(r, set, test, r->bits + (size_t)f->at[0] * words);
  if (ckh_sets_part(r, set, f->set, f->set + 1)) return FAILED;
  if (f->set[1] >= 0) {
    f->smaller = (uint8_t)smaller_side(r, f);
    return HALVES_AT_SAME_NODE;
  }
  f->set[1] = set;
  return split_places(r, f, depth, mask, 1, words, is_v3);
}

INLINE int split_state(ranker *r, frame *f, const state *now, uint32_t act, const size_t words, const int is_v3) {
  uint32_t test = act >> 2;
  f->set[0] = f->set[1] = now->set;
  f->at[0] = f->at[1] = now->at;
  f->count[0] = f->count[1] = now->count;
  if ((act & 3) == SPLIT_PLACES) return split_places(r, f, now->depth, r->masks + test * words, 1, words, is_v3);
  if (test < (uint32_t)r->plan->variant_tests) return split_variants(r, f, test);
  test -= (uint32_t)r->plan->variant_tests;
  if (test < r->mixed_count) return split_mixed(r, f, now->depth, r->mixed + test, words, is_v3);
  return split_places(r, f, now->depth, r->problem_masks + (test - r->mixed_count), 0, words, is_v3);
}

/* The value of a state of which the halves have these: that of the larger half, once the smaller one got the rest. */
INLINE uint64_t joined(ranker *r, const frame *f, uint64_t second, size_t words) {
  const int side = f->smaller;
  const uint64_t is_first = (uint64_t)(side ^ f->first) - 1; /* all bits, or none: either is as likely */
  const uint64_t more = ((f->value - second) ^ ~is_first) - ~is_first;
  const uint64_t value = second ^ ((second ^ f->value) & ~is_first);
  add(r, f->set[side], r->bits + (size_t)f->at[side] * words, f->count[side], more, words);
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
  state now = {decided(r->cells, r->action, root), r->full, 0, r->places, 0};
  uint64_t value;
  do {
    const int failed = walk_down(r, &now, &value, words, is_v3);
    if (failed) return failed;
  } while (!walk_up(r, &now, &value, words));
  *common += value;
  return CKH_RANK_OK;
}

INLINE int walk_forest(ranker *r, uint64_t *common, const size_t words, const int is_v3) {
  fill_ones(r->bits, r->places);
  for (int32_t tree = 0; tree < r->forest->trees; tree++) {
    int failed;
    fetch(r, tree + 2);
    failed = walk_tree(r, r->trees->roots[tree], common, words, is_v3);
    if (failed) return failed;
    if (r->set_count <= r->set_limit) continue;
    hand_down(r);
    ckh_sets_forget(r);
  }
  return CKH_RANK_OK;
}

/* ---- from sums to scores ---- */

INLINE uint64_t sum_of(const ranker *r, int32_t problem, int32_t candidate, uint64_t common) {
  const int32_t variant = r->plan->variant_of[candidate], at = r->plan->tile_of[candidate] * r->together + problem;
  return r->sums[(size_t)variant * r->row + (size_t)at] + r->sets[variant].all + common;
}

INLINE void keep_high(ranker *r, uint64_t common) {
  uint64_t *high = r->high;
  for (int32_t p = 0; p < r->together; p++)
    for (int32_t c = 0; c < r->plan->candidates; c++) *high++ = sum_of(r, p, c, common);
}

INLINE void write_scores(const ranker *r, int32_t problem, uint64_t common, double *scores) {
  const uint64_t *kept = r->high ? r->high + (size_t)problem * (size_t)r->plan->candidates : NULL;
  const number_format format = format_of(r->forest);
  for (int32_t c = 0; c < r->plan->candidates; c++) {
    const uint64_t sum = sum_of(r, problem, c, common);
    scores[c] = kept ? score_of_parts(&format, kept[c], sum) : score_of(&format, sum, 0);
  }
}

#define WALK(words) walk_forest(r, &common, words, is_v3)

/* Ranks as many problems as `r` has together. */
INLINE int rank(ranker *r, const double *constants, const double *rows, double *scores, size_t stride,
                const int is_v3) {
  ckh_tests_decide(r, constants, rows);
  for (int is_last = !r->high; is_last < 2; is_last++) {
    uint64_t common = 0;
    int failed;
    r->cells = r->trees->part[r->high ? is_last : 0];
    switch (r->place_words) {
      case 1: failed = WALK(1); break;
      case 2: failed = WALK(2); break;
      case 3: failed = WALK(3); break;
      case 4: failed = WALK(4); break;
      default: failed = WALK(r->place_words);
    }
    if (failed) return failed;
    hand_down(r);
    if (!is_last) keep_high(r, common);
    for (int32_t p = 0; is_last && p < r->together; p++) write_scores(r, p, common, scores + (size_t)p * stride);
    clear(r);
  }
  return CKH_RANK_OK;
}

typedef int ranking(ranker *, const double *, const double *, double *, size_t);

static int rank_portably(ranker *r, const double *constants, const double *rows, double *scores, size_t stride) {
  return rank(r, constants, rows, scores, stride, 0);
}
#ifdef HAS_V3
V3 static int rank_v3(ranker *r, const double *constants, const double *rows, double *scores, size_t stride) {
  return rank(r, constants, rows, scores, stride, 1);
}
#endif

/* ---- opening and closing ---- */

static void close_ranker(ranker *r) {
  if (!r) return;
  ckh_tests_close(r);
  ckh_sets_close(r);
  free(r->high);
  free(r->frames);
  free(r->bits);
  free(r);
}

static int prepare(ranker *r) {
  r->places = r->plan->tiles * r->together;
  r->place_words = words_for(r->places);
  r->variant_words = words_for(r->plan->variants);
  r->row = ((size_t)r->places + LANES - 1) / LANES * LANES;
  if (r->trees->part[1]) {
    r->high = grown(NULL, (size_t)r->plan->candidates * (size_t)r->together, sizeof *r->high);
    if (!r->high) return CKH_RANK_NO_MEMORY;
  }
  return ckh_tests_open(r) || ckh_sets_open(r) || grow_frames(r) ? CKH_RANK_NO_MEMORY : CKH_RANK_OK;
}

static ranker *open_ranker(const opened_forest *opened, int32_t together) {
  ranker *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->forest = opened->forest;
  r->plan = opened->plan;
  r->trees = &opened->trees;
  r->together = together;
  if (!prepare(r)) return r;
  close_ranker(r);
  return NULL;
}

/* ---- the interface ---- */

void *ckh_rank_open(const ckh_rank_forest *forest, const ckh_rank_plan *plan) {
  opened_forest *opened = calloc(1, sizeof *opened);
  if (!opened) return NULL;
  opened->forest = forest;
  opened->plan = plan;
  if (!ckh_trees_open(&opened->trees, forest, plan)) return opened;
  ckh_rank_close(opened);
  return NULL;
}

void ckh_rank_close(void *closed) {
  opened_forest *opened = closed;
  if (!opened) return;
  for (int size = 0; size < SIZES; size++) close_ranker(opened->rankers[size]);
  ckh_trees_close(&opened->trees);
  free(opened->held);
  free(opened);
}

/* What ranks as many of the problems together as is worth it, and finds memory; NULL if not even one does. */
static ranker *ranker_for(opened_forest *opened, int64_t problems) {
  const ckh_rank_plan *plan = opened->plan;
  const size_t each = (size_t)plan->tiles * ((size_t)plan->all_masks + (size_t)plan->variants * 64) / 8;
  for (int size = SIZES - 1; size >= 0; size--) {
    const int32_t together = (int32_t)1 << size;
    ranker **found = opened->rankers + size;
    if (size && (together > MOST_TOGETHER || together < FEWEST_TOGETHER || together > problems)) continue;
    if (size && each > (size_t)MOST_BYTES >> size) continue;
    if (!*found) *found = open_ranker(opened, together);
    if (*found) return *found;
  }
  return NULL;
}

int32_t ckh_rank_few(void *handle, const double *constants, const double *rows, const int32_t *candidate, int32_t count,
                     double *scores) {
  opened_forest *opened = handle;
  if (!opened->held) opened->held = grown(NULL, (size_t)opened->forest->tests, sizeof *opened->held);
  if (!opened->held) return CKH_RANK_NO_MEMORY;
  ckh_few_scores(opened->forest, opened->plan, &opened->trees, constants, rows, candidate, count, opened->held, scores);
  return CKH_RANK_OK;
}

int32_t ckh_rank_scores(void *handle, int64_t problems, const double *constants, const double *rows, double *scores,
                        int64_t stride, int32_t portable) {
  opened_forest *opened = handle;
  const ckh_rank_plan *plan = opened->plan;
  ranking *run = rank_portably;
#ifdef HAS_V3
  if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
    run = rank_v3;
#endif
  (void)portable;
  for (int64_t p = 0; p < problems;) {
    ranker *r = ranker_for(opened, problems - p);
    const double *own_rows = rows + p * plan->rows * plan->tiles;
    const int failed = r ? run(r, constants + p * plan->constants, own_rows, scores + p * stride, (size_t)stride)
                         : CKH_RANK_NO_MEMORY;
    if (failed) return failed;
    p += r->together;
  }
  return CKH_RANK_OK;
}
