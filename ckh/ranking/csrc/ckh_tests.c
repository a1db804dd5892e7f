/* Ranking: what each test does to a pool.

   Tests that differ only in their threshold are a family: whatever a value is, they hold from some test on. So a
   family whose values differ by place, or by problem, has tests before which none holds, then some that split by a mask,
   then tests that all hold. */
#include "ckh_ranker.h"

static int32_t classes_of(const ranker *r, int32_t partition) {
  return r->plan->class_starts[partition + 1] - r->plan->class_starts[partition];
}

/* ---- masks over values: of places, or of problems ---- */

/* Masks of categorical tests. */
static void fill_sets(const ranker *r, family tests, const double *value, int32_t count, uint64_t *masks) {
  const size_t words = words_for(count);
  memset(masks, 0, (size_t)tests.count * words * 8);
  for (int32_t i = 0; i < tests.count; i++)
    for (int32_t v = 0; v < count; v++)
      masks[(size_t)i * words + (size_t)v / 64] |= (uint64_t)in_set(r->forest, tests.first + i, value[v]) << v % 64;
}

/* Positions of values in a numerical family. Its tests before `low` hold for none, and those from `high` on for all. */
static void find_positions(const ranker *r, family tests, const double *value, int32_t count, int32_t *low,
                           int32_t *high) {
  const double *threshold = r->forest->thresholds + tests.first;
  const int32_t step = r->together; /* to the same problem's next tile, which often has the same value */
  *low = tests.count;
  *high = 0;
  for (int32_t v = 0; v < count; v++) {
    const int is_known = v >= step && value[v] == value[v - step];
    const int32_t at = is_known ? r->position[v - step] : position(threshold, tests.count, tests.flags, value[v]);
    r->position[v] = at;
    if (at < *low) *low = at;
    if (at > *high) *high = at;
  }
}

/* Masks of a numerical family's tests from `low` to `high`, by the positions that were found. */
static void fill_range(const ranker *r, int32_t count, uint64_t *masks, int32_t low, int32_t high) {
  const size_t words = words_for(count);
  if (low >= high) return;
  memset(masks + (size_t)low * words, 0, (size_t)(high - low) * words * 8);
  for (int32_t v = 0; v < count; v++)
    if (r->position[v] < high) masks[(size_t)r->position[v] * words + (size_t)v / 64] |= (uint64_t)1 << v % 64;
  for (size_t i = ((size_t)low + 1) * words; i < (size_t)high * words; i++) masks[i] |= masks[i - words];
}

/* Tests before `low` hold for nothing, those from `high` on for all. */
static void set_actions(const ranker *r, family tests, int32_t low, int32_t high) {
  uint32_t *action = r->action + tests.first;
  int32_t i = 0;
  for (; i < low; i++) action[i] = GO_RIGHT;
  for (; i < high; i++) action[i] = r->splitting[tests.first + i];
  for (; i < tests.count; i++) action[i] = GO_LEFT;
}

/* ---- a family at once ---- */

/* A family of one value for each problem, with masks over these: again and again in a word, as places have them. */
static void decide_problems(const ranker *r, family tests, const double *value, uint64_t *masks) {
  const uint64_t again = UINT64_MAX / (UINT64_MAX >> (64 - r->together));
  int32_t low, high;
  if (!(tests.flags & CATEGORICAL)) {
    find_positions(r, tests, value, r->together, &low, &high);
    fill_range(r, r->together, masks, low, high);
    for (int32_t i = low; i < high; i++) masks[i] *= again;
    set_actions(r, tests, low, high);
    return;
  }
  fill_sets(r, tests, value, r->together, masks);
  for (int32_t i = 0; i < tests.count; i++) {
    const int32_t held = ones(masks[i], 0), test = tests.first + i;
    masks[i] *= again;
    r->action[test] = held == 0 ? GO_RIGHT : held == r->together ? GO_LEFT : r->splitting[test];
  }
}

/* Merge the classes of variants for which all tests of a mixed family do the same. */
static void merge_classes(const ranker *r, int32_t f) {
  const family_values values = values_of(r->plan, f);
  const size_t words = r->variant_words, size = (size_t)family_of(r->forest, f).count * r->place_words;
  const uint64_t *masks = r->masks + (size_t)values.mask * r->place_words;
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

/* A row of the problems by place; of one problem it is that row. */
static const double *by_place(const ranker *r, const double *rows, int32_t row) {
  const ckh_rank_plan *plan = r->plan;
  const double *first = rows + (size_t)row * (size_t)plan->tiles;
  if (r->together == 1) return first;
  for (int32_t p = 0; p < r->together; p++, first += (size_t)plan->rows * (size_t)plan->tiles)
    for (int32_t t = 0; t < plan->tiles; t++) r->value[t * r->together + p] = first[t];
  return r->value;
}

/* A family of a value for each place: which of its tests split them, and their masks, class by class. */
static void decide_places(const ranker *r, int32_t f, const double *rows) {
  const family tests = family_of(r->forest, f);
  const family_values values = values_of(r->plan, f);
  const int32_t classes = values.kind == MIXED ? classes_of(r, values.partition) : 1, count = tests.count;
  int32_t low = count, high = 0;
  for (int32_t c = 0; c < classes; c++) {
    const double *value = by_place(r, rows, values.source + c);
    uint64_t *masks = r->masks + ((size_t)values.mask + (size_t)c * (size_t)count) * r->place_words;
    int32_t own_low = 0, own_high = count;
    if (tests.flags & CATEGORICAL) {
      fill_sets(r, tests, value, r->places, masks);
    } else {
      find_positions(r, tests, value, r->places, &own_low, &own_high);
      if (classes > 1) /* other classes may make a test split of which this one needs no mask */
        fill_range(r, r->places, masks, 0, count);
      else
        fill_range(r, r->places, masks, own_low, own_high);
    }
    if (own_low < low) low = own_low;
    if (own_high > high) high = own_high;
  }
  if (values.kind == MIXED) merge_classes(r, f);
  set_actions(r, tests, low, high);
}

void ckh_tests_decide(ranker *r, const double *constants, const double *rows) {
  uint64_t *masks = r->problem_masks;
  for (int32_t f = 0; f < r->forest->families; f++) {
    const family tests = family_of(r->forest, f);
    const family_values values = values_of(r->plan, f);
    if (values.kind == CONSTANT) {
      for (int32_t p = 0; p < r->together; p++) r->value[p] = constants[p * r->plan->constants + values.source];
      decide_problems(r, tests, r->value, masks);
      masks += tests.count;
    } else if (values.source >= 0) {
      decide_places(r, f, rows);
    }
  }
}

/* ---- opening ---- */

/* Where the classes of each family are among all; how many there are of these, of mixed tests, and of tests of one
   value for each problem. */
static void count_tests(ranker *r, size_t *classes, size_t *mixed, size_t *of_problems) {
  *classes = *mixed = *of_problems = 0;
  for (int32_t f = 0; f < r->forest->families; f++) {
    const family_values values = values_of(r->plan, f);
    const size_t count = (size_t)family_of(r->forest, f).count;
    r->merged[f] = (merged_classes){(int32_t)*classes, 0};
    if (values.kind == CONSTANT) *of_problems += count;
    if (values.kind != MIXED) continue;
    *classes += (size_t)classes_of(r, values.partition);
    *mixed += count;
  }
}

static int make_room(ranker *r) {
  size_t classes, mixed, of_problems;
  const size_t tests = (size_t)r->forest->tests, places = (size_t)r->places;
  if (!(r->merged = grown(NULL, (size_t)r->forest->families, sizeof *r->merged))) return CKH_RANK_NO_MEMORY;
  count_tests(r, &classes, &mixed, &of_problems);
  if (classes > INT32_MAX) return CKH_RANK_NO_MEMORY;
  r->mixed_count = (uint32_t)mixed;
  r->action = grown(NULL, tests + 1, sizeof *r->action);
  r->splitting = grown(NULL, tests, sizeof *r->splitting);
  r->problem_masks = grown(NULL, of_problems, sizeof *r->problem_masks);
  r->value = grown(NULL, places, sizeof *r->value);
  r->position = grown(NULL, places, sizeof *r->position);
  r->mixed = grown(NULL, mixed, sizeof *r->mixed);
  r->merged_class = grown(NULL, classes, sizeof *r->merged_class);
  r->merged_masks = grown(NULL, classes * r->variant_words, sizeof *r->merged_masks);
  r->masks = grown(NULL, (size_t)r->plan->all_masks * r->place_words, sizeof *r->masks);
  if (!r->action || !r->splitting || !r->problem_masks || !r->value || !r->position) return CKH_RANK_NO_MEMORY;
  return r->mixed && r->merged_class && r->merged_masks && r->masks ? CKH_RANK_OK : CKH_RANK_NO_MEMORY;
}

/* The masks over tiles that no problem changes, over places. */
static void spread_masks(ranker *r) {
  const size_t words = words_for(r->plan->tiles);
  memset(r->masks, 0, (size_t)r->plan->static_masks * r->place_words * 8);
  for (size_t i = 0; i < (size_t)r->plan->static_masks; i++)
    for (int32_t v = 0; v < r->places; v++) {
      const int32_t tile = v / r->together;
      const uint64_t holds = r->plan->masks[i * words + (size_t)tile / 64] >> tile % 64 & 1;
      r->masks[i * r->place_words + (size_t)v / 64] |= holds << v % 64;
    }
}

/* What tests do that no problem decides. */
static void set_splitting(ranker *r) {
  uint32_t mixed = 0, of_problems = (uint32_t)r->plan->variant_tests + r->mixed_count;
  for (int32_t f = 0; f < r->forest->families; f++) {
    const family tests = family_of(r->forest, f);
    const family_values values = values_of(r->plan, f);
    if (values.kind == MIXED && values.source < 0) merge_classes(r, f);
    for (int32_t i = 0; i < tests.count; i++) {
      const uint32_t mask = (uint32_t)(values.mask + i);
      uint32_t *action = r->splitting + tests.first + i;
      if (values.kind == CONSTANT) *action = of_problems++ << 2 | SPLIT_OTHERWISE;
      if (values.kind == TILE) *action = mask << 2 | SPLIT_PLACES;
      if (values.kind == VARIANT) *action = mask << 2 | SPLIT_OTHERWISE;
      if (values.kind == MIXED) {
        *action = ((uint32_t)r->plan->variant_tests + mixed) << 2 | SPLIT_OTHERWISE;
        r->mixed[mixed++] = (mixed_test){mask, (uint32_t)tests.count, f};
      }
    }
  }
  memcpy(r->action, r->splitting, (size_t)r->forest->tests * sizeof *r->action);
  r->action[r->forest->tests] = GO_RIGHT; /* there may be no other */
}

int ckh_tests_open(ranker *r) {
  const int failed = make_room(r);
  if (failed) return failed;
  spread_masks(r);
  set_splitting(r);
  return CKH_RANK_OK;
}

void ckh_tests_close(ranker *r) {
  free(r->action);
  free(r->splitting);
  free(r->problem_masks);
  free(r->value);
  free(r->position);
  free(r->mixed);
  free(r->merged);
  free(r->merged_class);
  free(r->merged_masks);
  free(r->masks);
}

const uint64_t *ckh_tests_alike(const ranker *r, int32_t set, const mixed_test *test, const uint64_t *places) {
  const size_t words = r->variant_words;
  const uint64_t *members = r->members + (size_t)set * words, *mask = NULL;
  const merged_classes *merged = r->merged + test->family;
  uint64_t *scratch = r->scratch;
  memset(scratch, 0, words * 8);
  for (int32_t e = merged->first; e < merged->first + merged->count; e++) {
    const uint64_t *variants = r->merged_masks + (size_t)e * words;
    const uint64_t *own = r->masks + (test->mask + (size_t)r->merged_class[e] * test->step) * r->place_words;
    uint64_t any = 0, differs = 0;
    for (size_t w = 0; w < words; w++) any |= members[w] & variants[w];
    if (!any) continue;
    if (!mask) mask = own;
    for (size_t w = 0; w < r->place_words; w++) differs |= (own[w] ^ mask[w]) & places[w];
    if (!differs)
      for (size_t w = 0; w < words; w++) scratch[w] |= members[w] & variants[w];
  }
  return mask;
}
