/* Reads a model: what it holds is used where it lies, after every offset, count and index has been checked.

   After a header come arrays, each with the size of its elements and their number, in the order in which they are
   taken here; ckh/export/model_file.py writes them. */
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"

enum { VERSION = 2, BYTE_ORDER_MARK = 0x01020304, MAX_TREES = 1 << 20, MAX_GROUPS = 1 << 12, MAX_REASONS = 1 << 24 };
enum { MAX_TILES = 4096 }; /* of a block */
enum { CONSTANT = 0, TILE = 1, VARIANT = 2, MIXED = 3, CATEGORICAL = 1 };

typedef struct {
  char magic[8];
  uint32_t byte_order, version;
  uint64_t key, bytes;
  uint32_t checksum, unused;
} header;

/* Eight bytes at a time, with a table for each. */
static uint32_t crc32_of(const unsigned char *data, size_t bytes) {
  uint32_t table[8][256], crc = 0xffffffffu;
  for (uint32_t i = 0; i < 256; i++) {
    table[0][i] = i;
    for (int bit = 0; bit < 8; bit++) table[0][i] = table[0][i] >> 1 ^ (table[0][i] & 1 ? 0xedb88320u : 0);
  }
  for (int t = 1; t < 8; t++)
    for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const uint32_t mixed =
        crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
    crc = table[7][mixed & 0xff] ^ table[6][mixed >> 8 & 0xff] ^ table[5][mixed >> 16 & 0xff] ^ table[4][mixed >> 24] ^
          table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
  }
  for (; bytes; bytes--, data++) crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xff];
  return ~crc;
}

/* The next array, and how many times `per` elements it has. */
const void *ckh_take(ckh_reader *r, size_t element, size_t per, int32_t *count) {
  uint32_t head[2];
  const void *found;
  size_t bytes;
  *count = 0;
  if (r->error || r->left < sizeof head) goto damaged;
  memcpy(head, r->at, sizeof head);
  if (head[0] != element || head[1] > INT32_MAX / 4 || head[1] % per) goto damaged;
  bytes = ((size_t)head[1] * element + 7) / 8 * 8;
  if (bytes > r->left - sizeof head) goto damaged;
  found = r->at + sizeof head;
  r->at += sizeof head + bytes;
  r->left -= sizeof head + bytes;
  *count = (int32_t)(head[1] / per);
  return found;
damaged:
  r->error = CKH_ERROR_DAMAGED;
  return NULL;
}

/* The same of a number of elements that is known. */
const void *ckh_take_exactly(ckh_reader *r, size_t element, size_t wanted) {
  int32_t count;
  const void *found = ckh_take(r, element, 1, &count);
  if (r->error || (size_t)count != wanted) {
    r->error = CKH_ERROR_DAMAGED;
    return NULL;
  }
  return found;
}

const int32_t *ckh_take_integers(ckh_reader *r, size_t wanted) {
  return (const int32_t *)ckh_take_exactly(r, sizeof(int32_t), wanted);
}

static void *cleared(ckh_reader *r, int32_t count, size_t size) {
  void *found = count < 0 ? NULL : calloc((size_t)count + 1, size);
  if (!found && !r->error) r->error = CKH_ERROR_NO_MEMORY;
  return found;
}

static int within(const int32_t *values, size_t count, int32_t low, int32_t high) {
  for (size_t i = 0; i < count; i++)
    if (values[i] < low || values[i] >= high) return 0;
  return 1;
}

/* Whether masks of `count` bits have no others. */
static int are_masks(const uint64_t *masks, size_t rows, int32_t count) {
  const size_t words = ((size_t)count + 63) / 64;
  if (count % 64)
    for (size_t i = 0; i < rows; i++)
      if (masks[i * words + words - 1] >> count % 64) return 0;
  return 1;
}

/* ---- forests ---- */

/* Whether each node but the roots, and each leaf, has one parent, and each node comes after its parent. */
static int are_trees(const ckh_rank_forest *forest, int32_t nodes, unsigned char *seen) {
  for (int32_t i = 0; i < nodes; i++)
    for (int side = 1; side < 3; side++) {
      const int32_t child = forest->nodes[3 * (size_t)i + (size_t)side];
      if (child >= 0 ? child <= i || child >= nodes : ~child >= forest->leaves_count) return 0;
      if (seen[child >= 0 ? child : nodes + ~child]++) return 0;
    }
  for (int32_t i = 0; i < forest->trees; i++) {
    const int32_t root = forest->roots[i];
    if (root >= 0 ? root >= nodes : ~root >= forest->leaves_count) return 0;
    if (seen[root >= 0 ? root : nodes + ~root]++) return 0;
  }
  return 1;
}

static int are_families(const ckh_rank_forest *forest, int32_t words) {
  int32_t end = 0;
  for (int32_t f = 0; f < forest->families; f++) {
    const int32_t *family = forest->family + 4 * (size_t)f;
    if (family[1] < 0 || family[1] > 15 || family[2] != end || family[3] < 1 || family[3] > forest->tests - end)
      return 0;
    end += family[3];
    for (int32_t i = family[2]; i < end; i++) {
      const int32_t *set = forest->sets + 2 * (size_t)i;
      if (!(forest->thresholds[i] == forest->thresholds[i])) return 0;
      if (!(family[1] & CATEGORICAL) && i > family[2] && !(forest->thresholds[i - 1] < forest->thresholds[i])) return 0;
      if (set[0] < 0 || set[1] < 0 || set[0] > words || set[1] > words - set[0]) return 0;
    }
  }
  return end == forest->tests;
}

static void fill_forest(ckh_reader *r, ckh_rank_forest *forest) {
  const int32_t *exponents = ckh_take_integers(r, 2);
  int32_t nodes, words, shift;
  unsigned char *seen;
  forest->roots = (const int32_t *)ckh_take(r, 4, 1, &forest->trees);
  forest->nodes = (const int32_t *)ckh_take(r, 4, 3, &nodes);
  forest->leaves = (const int64_t *)ckh_take(r, 8, 2, &forest->leaves_count);
  forest->family = (const int32_t *)ckh_take(r, 4, 4, &forest->families);
  forest->thresholds = (const double *)ckh_take(r, 8, 1, &forest->tests);
  forest->sets = (const int32_t *)ckh_take_exactly(r, 4, 2 * (size_t)forest->tests);
  forest->words = (const uint32_t *)ckh_take(r, 4, 1, &words);
  if (r->error) return;
  forest->high_exponent = exponents[0];
  forest->low_exponent = exponents[1];
  r->error = CKH_ERROR_DAMAGED;
  if (!within(exponents, 2, -4096, 4096) || forest->trees > MAX_TREES) return;
  shift = forest->high_exponent - forest->low_exponent;
  if (shift < 1 || shift > 62 || !are_families(forest, words)) return;
  for (int32_t i = 0; i < nodes; i++)
    if (forest->nodes[3 * (size_t)i] < 0 || forest->nodes[3 * (size_t)i] >= forest->tests) return;
  seen = (unsigned char *)calloc((size_t)nodes + (size_t)forest->leaves_count + 1, 1);
  if (!seen)
    r->error = CKH_ERROR_NO_MEMORY;
  else if (are_trees(forest, nodes, seen))
    r->error = 0;
  free(seen);
}

/* ---- groups ---- */

/* Whether each class of each partition has its number of masks, and each variant one class. */
static int are_partitions(const ckh_group *group, const int32_t *starts, const uint64_t *masks) {
  const size_t words = ((size_t)group->variants + 63) / 64;
  if (starts[0] != 0) return 0;
  for (int32_t p = 0; p < group->program->partitions; p++)
    if (starts[p + 1] - (int64_t)starts[p] != group->program->classes[p]) return 0;
  for (int32_t p = 0; p < group->program->partitions; p++)
    for (int32_t v = 0; v < group->variants; v++) {
      int count = 0;
      for (int32_t c = starts[p]; c < starts[p + 1]; c++)
        count += (int)(masks[(size_t)c * words + (size_t)v / 64] >> v % 64 & 1);
      if (count != 1) return 0;
    }
  return 1;
}

/* Whether a family's values and masks are there. */
static int is_place(const ckh_group *group, const ckh_rank_plan *plan, const int32_t *place, int64_t tests) {
  const ckh_program *program = group->program;
  const int is_dynamic = place[1] >= 0;
  int64_t classes = 1, low, high;
  if (place[0] == CONSTANT) return is_dynamic && place[1] < program->constants;
  if (place[2] < 0) return 0;
  if (place[0] == VARIANT) return !is_dynamic && place[2] + tests <= plan->variant_tests;
  if (place[0] == MIXED) {
    if (place[3] < 0 || place[3] >= program->partitions) return 0;
    classes = program->classes[place[3]];
  } else if (place[0] != TILE) {
    return 0;
  }
  low = is_dynamic ? plan->static_masks : 0;
  high = is_dynamic ? plan->all_masks : plan->static_masks;
  return place[2] >= low && place[2] + classes * tests <= high && (!is_dynamic || place[1] + classes <= program->rows);
}

static void fill_plans(ckh_reader *r, const ckh_model *model, ckh_group *group, const int32_t *starts,
                       const uint64_t *class_masks) {
  for (int32_t f = 0; f < model->forests; f++) {
    const ckh_rank_forest *forest = model->forest + f;
    const size_t variant_words = ((size_t)group->variants + 63) / 64;
    ckh_rank_plan plan;
    const int32_t *masks = ckh_take_integers(r, 2);
    memset(&plan, 0, sizeof plan);
    plan.family = ckh_take_integers(r, 4 * (size_t)forest->families);
    plan.variant_masks = (const uint64_t *)ckh_take(r, 8, variant_words, &plan.variant_tests);
    if (r->error) return;
    plan.static_masks = masks[0];
    plan.all_masks = masks[1];
    plan.variants = group->variants;
    plan.constants = group->program->constants;
    plan.rows = group->program->rows;
    plan.class_starts = starts;
    plan.class_masks = class_masks;
    r->error = CKH_ERROR_DAMAGED;
    if (masks[0] < 0 || masks[1] < masks[0] || masks[1] > INT32_MAX / 8) return;
    if (!are_masks(plan.variant_masks, (size_t)plan.variant_tests, group->variants)) return;
    for (int32_t i = 0; i < forest->families; i++)
      if (!is_place(group, &plan, plan.family + 4 * (size_t)i, forest->family[4 * (size_t)i + 3])) return;
    r->error = 0;
    for (int32_t b = 0; b < group->blocks; b++) group->plan[f * group->blocks + b] = plan;
  }
}

static void fill_block(ckh_reader *r, const ckh_model *model, ckh_group *group, int32_t b) {
  ckh_block *block = group->block + b;
  const int32_t *numbers = ckh_take_integers(r, 2), *tile_of, *variant_of;
  block->candidate = (const int32_t *)ckh_take(r, 4, 1, &block->candidates);
  tile_of = ckh_take_integers(r, (size_t)block->candidates);
  variant_of = ckh_take_integers(r, (size_t)block->candidates);
  if (r->error) return;
  block->first = numbers[0];
  block->tiles = numbers[1];
  if (block->first < 0 || block->tiles < 1 || block->tiles > MAX_TILES || block->first > group->tiles - block->tiles ||
      !within(block->candidate, (size_t)block->candidates, 0, group->candidates) ||
      !within(tile_of, (size_t)block->candidates, 0, block->tiles) ||
      !within(variant_of, (size_t)block->candidates, 0, group->variants)) {
    r->error = CKH_ERROR_DAMAGED;
    return;
  }
  for (int32_t f = 0; f < model->forests && !r->error; f++) {
    ckh_rank_plan *plan = group->plan + f * group->blocks + b;
    plan->tiles = block->tiles;
    plan->candidates = block->candidates;
    plan->tile_of = tile_of;
    plan->variant_of = variant_of;
    plan->masks = (const uint64_t *)ckh_take_exactly(
        r, 8, (size_t)plan->static_masks * (((size_t)block->tiles + 63) / 64));
    if (!r->error && !are_masks(plan->masks, (size_t)plan->static_masks, block->tiles)) r->error = CKH_ERROR_DAMAGED;
  }
}

/* Whether deciding comes to an end: each step leads to an earlier one, or is the last. */
static int are_decisions(const ckh_group *group) {
  const int32_t last = CKH_REFUSED - group->reasons + (group->reasons > 0);
  for (int32_t i = 0; i < group->decisions; i++) {
    const int32_t *step = group->tree + 3 * (size_t)i;
    if (step[0] < 0 || step[0] >= group->program->conditions || !within(step + 1, 2, last, i)) return 0;
  }
  return within(group->decision, (size_t)group->candidates, last, group->decisions);
}

static int are_all_in_blocks(const ckh_group *group, unsigned char *seen) {
  for (int32_t b = 0; b < group->blocks; b++)
    for (int32_t i = 0; i < group->block[b].candidates; i++)
      if (seen[group->block[b].candidate[i]]++) return 0;
  for (int32_t i = 0; i < group->candidates; i++)
    if (!seen[i]) return 0;
  return 1;
}

static void fill_pool(ckh_reader *r, const ckh_model *model, ckh_group *group) {
  const ckh_program *program = group->program;
  const int32_t *starts;
  const uint64_t *class_masks;
  int32_t classes;
  unsigned char *seen;
  group->leaf = (const double **)cleared(r, program->leaves, sizeof *group->leaf);
  group->block = (ckh_block *)cleared(r, group->blocks, sizeof *group->block);
  group->plan = (ckh_rank_plan *)cleared(r, group->blocks * model->forests, sizeof *group->plan);
  group->idle = (void **)cleared(r, CKH_IDLE, sizeof *group->idle);
  for (int32_t i = 0; i < program->leaves && !r->error; i++)
    group->leaf[i] = (const double *)ckh_take_exactly(
        r, 8, (size_t)program->leaf_classes[i] * (program->leaf_by_tile[i] ? (size_t)group->tiles : 1));
  starts = ckh_take_integers(r, (size_t)program->partitions + 1);
  class_masks = (const uint64_t *)ckh_take(r, 8, ((size_t)group->variants + 63) / 64, &classes);
  if (r->error) return;
  if (classes != starts[program->partitions] || !are_partitions(group, starts, class_masks)) {
    r->error = CKH_ERROR_DAMAGED;
    return;
  }
  fill_plans(r, model, group, starts, class_masks);
  for (int32_t b = 0; b < group->blocks && !r->error; b++) fill_block(r, model, group, b);
  if (r->error) return;
  seen = (unsigned char *)cleared(r, group->candidates, 1);
  if (seen && !are_all_in_blocks(group, seen)) r->error = CKH_ERROR_DAMAGED;
  free(seen);
}

static void fill_group(ckh_reader *r, const ckh_model *model, ckh_group *group) {
  const int32_t *numbers = ckh_take_integers(r, CKH_KEYS + 5);
  int32_t candidates;
  group->name = (const int32_t *)ckh_take(r, 4, 1, &group->candidates);
  group->decision = (const int32_t *)ckh_take(r, 4, 1, &candidates);
  group->tree = (const int32_t *)ckh_take(r, 4, 3, &group->decisions);
  if (r->error) return;
  memcpy(group->key, numbers, sizeof group->key);
  if (!group->candidates) return; /* a kind of problems that no kernel is for */
  r->error = CKH_ERROR_DAMAGED;
  if (!within(numbers + CKH_KEYS, 1, 0, model->program_count) || candidates != group->candidates) return;
  group->program = model->programs + numbers[CKH_KEYS];
  group->tiles = numbers[CKH_KEYS + 1];
  group->variants = numbers[CKH_KEYS + 2];
  group->blocks = numbers[CKH_KEYS + 3];
  group->reasons = numbers[CKH_KEYS + 4];
  if (group->tiles < 1 || group->tiles > group->candidates || group->variants < 1 ||
      group->variants > group->candidates || group->blocks < 1 || group->blocks > group->tiles ||
      !within(&group->reasons, 1, 0, MAX_REASONS))
    return;
  if (!within(group->name, (size_t)group->candidates, 0, model->names) || !are_decisions(group)) return;
  r->error = 0;
  fill_pool(r, model, group);
}

/* ---- the whole ---- */

static void fill_names(ckh_reader *r, ckh_model *model) {
  int32_t bytes, names;
  model->text = (const char *)ckh_take(r, 1, 1, &bytes);
  model->name = (const int32_t *)ckh_take(r, 4, 1, &names);
  if (r->error) return;
  model->names = names - 2;
  if (names < 2 || bytes < 1 || model->text[bytes - 1] || !within(model->name, (size_t)names, 0, bytes))
    r->error = CKH_ERROR_DAMAGED;
}

static void fill_facts(ckh_reader *r, ckh_model *model) {
  const int32_t *numbers = ckh_take_integers(r, 8);
  if (r->error) return;
  model->kind = numbers[0];
  model->direction = numbers[1];
  model->dtype = numbers[2];
  model->forests = numbers[3];
  model->tflops = numbers[4];
  model->is_log[0] = numbers[5];
  model->is_log[1] = numbers[6];
  model->groups = numbers[7];
  if ((model->kind != CKH_CONV && model->kind != CKH_GEMM) || model->forests < 1 || model->forests > 2 ||
      model->tflops < -1 || model->tflops >= model->forests || !within(model->is_log, 2, 0, 2) ||
      !within(&model->groups, 1, 0, MAX_GROUPS))
    r->error = CKH_ERROR_DAMAGED;
}

static int check_header(const void *data, size_t bytes, uint64_t *key) {
  header head;
  if (bytes < sizeof head) return CKH_ERROR_DAMAGED;
  memcpy(&head, data, sizeof head);
  if (memcmp(head.magic, "CKHMODEL", sizeof head.magic) || head.byte_order != BYTE_ORDER_MARK) return CKH_ERROR_DAMAGED;
  if (head.version != VERSION) return CKH_ERROR_VERSION;
  if (head.bytes != bytes || head.unused) return CKH_ERROR_DAMAGED;
  *key = head.key;
  return head.checksum == crc32_of((const unsigned char *)data + sizeof head, bytes - sizeof head) ? CKH_OK
                                                                                                   : CKH_ERROR_DAMAGED;
}

int ckh_fill(ckh_model *model, const void *data, size_t bytes) {
  ckh_reader r;
  uint64_t key = 0;
  r.error = check_header(data, bytes, &key);
  if (r.error) return r.error;
  r.at = (const unsigned char *)data + sizeof(header);
  r.left = bytes - sizeof(header);
  fill_names(&r, model);
  fill_facts(&r, model);
  ckh_read_programs(&r, model, key);
  if (r.error) return r.error;
  for (int32_t f = 0; f < model->forests && !r.error; f++) fill_forest(&r, model->forest + f);
  model->group = (ckh_group *)cleared(&r, model->groups, sizeof *model->group);
  for (int32_t g = 0; g < model->groups && !r.error; g++) fill_group(&r, model, model->group + g);
  if (!r.error && r.left) r.error = CKH_ERROR_DAMAGED;
  return r.error;
}

void ckh_release(ckh_model *model) {
  for (int32_t g = 0; model->group && g < model->groups; g++) {
    ckh_group *group = model->group + g;
    for (int i = 0; group->idle && i < CKH_IDLE; i++)
      ckh_free_workspace(group->idle[i], (size_t)group->blocks * (size_t)model->forests);
    free((void *)group->leaf);
    free(group->block);
    free(group->plan);
    free(group->idle);
  }
  free(model->group);
  model->group = NULL;
  ckh_free_programs(model);
}
