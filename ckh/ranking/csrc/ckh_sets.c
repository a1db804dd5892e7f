/* Ranking: sets of variants, and how tests part them. They are numbered as they arise, since there are few: first each
   variant alone, then all of them. */
#include "ckh_ranker.h"

#define NO_SPLIT UINT64_MAX
#define MOST_SETS_BYTES ((size_t)1 << 25)
#ifndef MOST_SETS
#define MOST_SETS 64 /* that are kept at least, whatever their size */
#endif

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

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

/* What becomes of a set: the members in a mask, which `scratch` has or gets, and the others. */
static int part(ranker *r, int32_t set, const uint64_t *mask, int32_t *left, int32_t *right) {
  const size_t words = r->variant_words;
  uint64_t *in_left = r->scratch, *in_right = in_left + words;
  for (size_t w = 0; w < words; w++) {
    const uint64_t members = r->members[(size_t)set * words + w];
    in_right[w] = members & ~mask[w];
    in_left[w] = members & mask[w];
  }
  *left = number_of(r, in_left);
  *right = number_of(r, in_right);
  if (*left == NO_MEMORY || *right == NO_MEMORY) return CKH_RANK_NO_MEMORY;
  if (*left >= 0 && *right >= 0 && r->sets[set].left < 0) {
    r->sets[set].left = *left;
    r->sets[set].right = *right;
  }
  return CKH_RANK_OK;
}

int ckh_sets_part(ranker *r, int32_t set, int32_t *left, int32_t *right) {
  return part(r, set, r->scratch, left, right);
}

int ckh_sets_part_by_test(ranker *r, int32_t set, uint32_t test, int32_t *left, int32_t *right) {
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
      if (part(r, set, mask, left, right)) return CKH_RANK_NO_MEMORY;
      *known = (split){key, *left, *right};
      r->splits_count++;
      return CKH_RANK_OK;
    }
  }
}

void ckh_sets_forget(ranker *r) {
  r->set_count = r->full + 1;
  r->sets[r->full].left = r->sets[r->full].right = -1;
  index_sets(r);
  r->splits_count = 0;
  if (r->splits) memset(r->splits, 0xff, r->splits_room * sizeof *r->splits);
}

/* How many sets are kept before all but the first ones are forgotten. */
static int32_t most_sets(const ranker *r) {
  const size_t per_set = r->row * 8 + r->variant_words * 8 + sizeof(variant_set), fit = MOST_SETS_BYTES / per_set;
  return r->plan->variants + MOST_SETS + (int32_t)(MOST_SETS && fit > MOST_SETS ? fit : 0);
}

int ckh_sets_open(ranker *r) {
  r->set_limit = most_sets(r);
  r->scratch = grown(NULL, 2 * r->variant_words, sizeof *r->scratch);
  r->touched = grown(NULL, (size_t)r->plan->variants + 1, sizeof *r->touched);
  return r->scratch && r->touched ? first_sets(r) : CKH_RANK_NO_MEMORY;
}

void ckh_sets_close(ranker *r) {
  free(r->sets);
  free(r->members);
  free(r->sums);
  free(r->scratch);
  free(r->by_members);
  free(r->touched);
  free(r->splits);
}
