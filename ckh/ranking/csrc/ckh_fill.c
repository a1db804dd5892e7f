/* Reads a model: what it holds is used where it lies, after every offset, count and index has been checked.

   ckh_layout.h says what it holds. */
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"

enum { VERSION = 6, BYTE_ORDER_MARK = 0x01020304, MAX_TREES = 1 << 20, MAX_GROUPS = 1 << 12 };
enum { MAX_PROGRAMS = 1 << 12, MAX_REASONS = 1 << 24 };
enum { MAX_TILES = 4096 }; /* of a block */
enum { CONSTANT = 0, TILE = 1, VARIANT = 2, MIXED = 3, CATEGORICAL = 1 };

typedef struct {
  char magic[8];
  uint32_t byte_order, version;
  uint64_t bytes;
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

/* What is left of a model that is read, and what was wrong. */
typedef struct {
  const unsigned char *at;
  size_t left;
  int error;
} reader;

/* The next array, and how many entries it has. */
static const void *take(reader *r, size_t entry, int32_t *count) {
  uint32_t head[2];
  const void *found;
  size_t bytes;
  *count = 0;
  if (r->error || r->left < sizeof head) goto damaged;
  memcpy(head, r->at, sizeof head);
  if (head[0] != entry || head[1] > INT32_MAX / 4) goto damaged;
  bytes = ((size_t)head[1] * entry + 7) / 8 * 8;
  if (bytes > r->left - sizeof head) goto damaged;
  found = r->at + sizeof head;
  r->at += sizeof head + bytes;
  r->left -= sizeof head + bytes;
  *count = (int32_t)head[1];
  return found;
damaged:
  if (!r->error) r->error = CKH_ERROR_DAMAGED;
  return NULL;
}

#define TAKE(name, type) to->name = (const type *)take(r, sizeof(type), &to->name##_count);
static void take_head(reader *r, ckh_head *to) { CKH_HEAD_ARRAYS(TAKE) }
static void take_program(reader *r, ckh_program *to) { CKH_PROGRAM_ARRAYS(TAKE) }
static void take_forest(reader *r, ckh_forest *to) { CKH_FOREST_ARRAYS(TAKE) }
static void take_group(reader *r, ckh_group_arrays *to) { CKH_GROUP_ARRAYS(TAKE) }
static void take_pool(reader *r, ckh_pool *to) { CKH_POOL_ARRAYS(TAKE) }
static void take_plan(reader *r, ckh_plan *to) { CKH_PLAN_ARRAYS(TAKE) }
static void take_block(reader *r, ckh_block *to) { CKH_BLOCK_ARRAYS(TAKE) }
static void take_masks(reader *r, ckh_masks *to) { CKH_MASKS_ARRAYS(TAKE) }

/* Go on only if this is so. */
static void require(reader *r, int is_so) {
  if (!r->error && !is_so) r->error = CKH_ERROR_DAMAGED;
}

static void *cleared(reader *r, int64_t count, size_t size) {
  void *found = count < 0 ? NULL : calloc((size_t)count + 1, size);
  if (!found && !r->error) r->error = CKH_ERROR_NO_MEMORY;
  return found;
}

static int within(const int32_t *values, int32_t count, int32_t low, int32_t high) {
  for (int32_t i = 0; i < count; i++)
    if (values[i] < low || values[i] >= high) return 0;
  return 1;
}

static size_t words_for(int32_t count) { return ((size_t)count + 63) / 64; }

/* Whether there are so many masks of `count` bits, which have no others. */
static int are_masks(const uint64_t *masks, int64_t words, int64_t rows, int32_t count) {
  const int64_t each = (int64_t)words_for(count);
  if (words != rows * each) return 0;
  for (int64_t i = 0; i < rows && count % 64; i++)
    if (masks[i * each + each - 1] >> count % 64) return 0;
  return 1;
}

/* ---- forests ---- */

/* Whether each node but the roots, and each leaf, has one parent, and each node comes after its parent. */
static int are_trees(const ckh_forest *forest, unsigned char *seen) {
  const int32_t nodes = forest->nodes_count, leaves = forest->leaves_count;
  for (int32_t i = 0; i < nodes; i++) {
    const int32_t children[2] = {forest->nodes[i].left, forest->nodes[i].right};
    for (int side = 0; side < 2; side++) {
      const int32_t child = children[side];
      if (child >= 0 ? child <= i || child >= nodes : ~child >= leaves) return 0;
      if (seen[child >= 0 ? child : nodes + ~child]++) return 0;
    }
  }
  for (int32_t i = 0; i < forest->roots_count; i++) {
    const int32_t root = forest->roots[i];
    if (root >= 0 ? root >= nodes : ~root >= leaves) return 0;
    if (seen[root >= 0 ? root : nodes + ~root]++) return 0;
  }
  return 1;
}

static int are_families(const ckh_forest *forest) {
  int32_t end = 0;
  for (int32_t f = 0; f < forest->family_count; f++) {
    const ckh_family *family = forest->family + f;
    const int is_numerical = !(family->flags & CATEGORICAL);
    if (family->flags < 0 || family->flags > 15 || family->first != end || family->count < 1 ||
        family->count > forest->thresholds_count - end)
      return 0;
    end += family->count;
    for (int32_t i = family->first; i < end; i++) {
      const ckh_set *set = forest->sets + i;
      if (!(forest->thresholds[i] == forest->thresholds[i])) return 0;
      if (is_numerical && i > family->first && !(forest->thresholds[i - 1] < forest->thresholds[i])) return 0;
      if (set->first < 0 || set->count < 0 || set->first > forest->words_count ||
          set->count > forest->words_count - set->first)
        return 0;
    }
  }
  return end == forest->thresholds_count;
}

static int are_numbers(const ckh_forest *forest) {
  const ckh_exponents *exponents = forest->exponents;
  int64_t shift;
  if (forest->exponents_count != 1 || forest->sets_count != forest->thresholds_count || forest->roots_count > MAX_TREES)
    return 0;
  if (exponents->high < -4096 || exponents->high > 4096) return 0;
  if (exponents->form < 0 || exponents->form >= CKH_FORM_COUNT) return 0;
  if (exponents->form == CKH_FORM_INPUT && forest->family_count < 1) return 0;
  shift = (int64_t)exponents->high - exponents->low;
  if (shift < 1 || shift > 62) return 0;
  for (int32_t i = 0; i < forest->nodes_count; i++)
    if (forest->nodes[i].test < 0 || forest->nodes[i].test >= forest->thresholds_count) return 0;
  return 1;
}

static void fill_forest(reader *r, ckh_forest *forest, ckh_rank_forest *ranked) {
  unsigned char *seen;
  take_forest(r, forest);
  require(r, !r->error && are_numbers(forest) && are_families(forest));
  seen = (unsigned char *)cleared(r, (int64_t)forest->nodes_count + forest->leaves_count, 1);
  require(r, !r->error && are_trees(forest, seen));
  free(seen);
  if (r->error) return;
  ranked->trees = forest->roots_count;
  ranked->families = forest->family_count;
  ranked->tests = forest->thresholds_count;
  ranked->leaves_count = forest->leaves_count;
  ranked->high_exponent = forest->exponents->high;
  ranked->low_exponent = forest->exponents->low;
  ranked->roots = forest->roots;
  ranked->nodes = (const int32_t *)forest->nodes;
  ranked->family = (const int32_t *)forest->family;
  ranked->sets = (const int32_t *)forest->sets;
  ranked->leaves = (const int64_t *)forest->leaves;
  ranked->thresholds = forest->thresholds;
  ranked->words = forest->words;
}

/* ---- groups ---- */

/* Whether each class of each partition has its masks, and each variant one class. */
static int are_partitions(const ckh_program *program, const ckh_pool *pool, int32_t variants) {
  const size_t words = words_for(variants);
  const int32_t *starts = pool->class_starts;
  if (pool->class_starts_count != program->classes_count + 1 || starts[0] != 0) return 0;
  for (int32_t p = 0; p < program->classes_count; p++)
    if (starts[p + 1] - (int64_t)starts[p] != program->classes[p]) return 0;
  if (!are_masks(pool->class_masks, pool->class_masks_count, starts[program->classes_count], variants)) return 0;
  for (int32_t p = 0; p < program->classes_count; p++)
    for (int32_t v = 0; v < variants; v++) {
      int count = 0;
      for (int32_t c = starts[p]; c < starts[p + 1]; c++)
        count += (int)(pool->class_masks[(size_t)c * words + (size_t)v / 64] >> v % 64 & 1);
      if (count != 1) return 0;
    }
  return 1;
}

/* Whether the pool has all values of its leaves. */
static int are_values(const ckh_program *program, const ckh_pool *pool, int32_t tiles) {
  int64_t count = 0;
  for (int32_t i = 0; i < program->shape_count; i++)
    count += (int64_t)program->shape[i].classes * (program->shape[i].by_tile ? tiles : 1);
  return count == pool->values_count;
}

/* Whether a family's values and masks are there. */
static int is_source(const ckh_program *program, const ckh_rank_plan *plan, const ckh_source *place, int64_t tests) {
  const int is_dynamic = place->source >= 0;
  int64_t classes = 1, low, high;
  if (place->kind == CONSTANT) return is_dynamic && place->source < program->counts->constants;
  if (place->mask < 0) return 0;
  if (place->kind == VARIANT) return !is_dynamic && place->mask + tests <= plan->variant_tests;
  if (place->kind == MIXED) {
    if (place->partition < 0 || place->partition >= program->classes_count) return 0;
    classes = program->classes[place->partition];
  } else if (place->kind != TILE) {
    return 0;
  }
  low = is_dynamic ? plan->static_masks : 0;
  high = is_dynamic ? plan->all_masks : plan->static_masks;
  return place->mask >= low && place->mask + classes * tests <= high &&
         (!is_dynamic || place->source + classes <= program->counts->rows);
}

static void fill_plan(reader *r, const ckh_forest *forest, const ckh_group *group, ckh_rank_plan *made) {
  const ckh_program *program = group->program;
  const int32_t variants = group->own.group->variants;
  const size_t words = words_for(variants);
  ckh_plan plan;
  take_plan(r, &plan);
  require(r, plan.counts_count == 1 && plan.family_count == forest->family_count);
  if (r->error) return;
  memset(made, 0, sizeof *made);
  made->family = (const int32_t *)plan.family;
  made->variant_masks = plan.variant_masks;
  made->variant_tests = (int32_t)((size_t)plan.variant_masks_count / words);
  made->static_masks = plan.counts->fixed;
  made->all_masks = plan.counts->all;
  made->variants = variants;
  made->constants = program->counts->constants;
  made->rows = program->counts->rows;
  made->class_starts = group->pool.class_starts;
  made->class_masks = group->pool.class_masks;
  require(r, plan.counts->fixed >= 0 && plan.counts->all >= plan.counts->fixed && plan.counts->all <= INT32_MAX / 8);
  require(r, are_masks(plan.variant_masks, plan.variant_masks_count, made->variant_tests, variants));
  for (int32_t i = 0; i < plan.family_count && !r->error; i++)
    require(r, is_source(program, made, plan.family + i, forest->family[i].count));
  if (forest->exponents->form == CKH_FORM_INPUT) /* masks alone tell no values */
    require(r, !r->error && plan.family->source >= 0);
}

static void fill_block(reader *r, const ckh_model *model, ckh_group *group, int32_t b) {
  ckh_block *block = group->block + b;
  const ckh_group_record *own = group->own.group;
  take_block(r, block);
  require(r, !r->error && block->range_count == 1 && block->tile_of_count == block->candidate_count &&
                 block->variant_of_count == block->candidate_count);
  require(r, !r->error && block->range->first >= 0 && block->range->tiles >= 1 && block->range->tiles <= MAX_TILES &&
                 block->range->first <= own->tiles - block->range->tiles &&
                 within(block->candidate, block->candidate_count, 0, group->own.kernel_count) &&
                 within(block->tile_of, block->candidate_count, 0, block->range->tiles) &&
                 within(block->variant_of, block->candidate_count, 0, own->variants));
  for (int32_t f = 0; f < model->head.facts->forests && !r->error; f++) {
    ckh_rank_plan *plan = group->plan + f * own->blocks + b;
    ckh_masks masks;
    take_masks(r, &masks);
    require(r, !r->error && are_masks(masks.masks, masks.masks_count, plan->static_masks, block->range->tiles));
    if (r->error) return;
    plan->tiles = block->range->tiles;
    plan->candidates = block->candidate_count;
    plan->tile_of = block->tile_of;
    plan->variant_of = block->variant_of;
    plan->masks = masks.masks;
  }
}

/* Whether deciding comes to an end: each step leads to an earlier one, or is the last. */
static int are_decisions(const ckh_program *program, const ckh_group_arrays *own) {
  const int32_t last = CKH_REFUSED - own->group->reasons + (own->group->reasons > 0);
  for (int32_t i = 0; i < own->step_count; i++) {
    const ckh_step *step = own->step + i;
    if (step->condition < 0 || step->condition >= program->counts->conditions || step->yes < last || step->yes >= i ||
        step->no < last || step->no >= i)
      return 0;
  }
  return within(own->decision, own->decision_count, last, own->step_count);
}

static int are_all_in_blocks(const ckh_group *group, unsigned char *seen) {
  for (int32_t b = 0; b < group->own.group->blocks; b++)
    for (int32_t i = 0; i < group->block[b].candidate_count; i++)
      if (seen[group->block[b].candidate[i]]++) return 0;
  for (int32_t i = 0; i < group->own.kernel_count; i++)
    if (!seen[i]) return 0;
  return 1;
}

static void fill_pool(reader *r, const ckh_model *model, ckh_group *group) {
  const ckh_group_record *own = group->own.group;
  const int32_t forests = model->head.facts->forests;
  unsigned char *seen;
  group->block = (ckh_block *)cleared(r, own->blocks, sizeof *group->block);
  group->plan = (ckh_rank_plan *)cleared(r, (int64_t)own->blocks * forests, sizeof *group->plan);
  group->idle = (void **)cleared(r, CKH_IDLE, sizeof *group->idle);
  take_pool(r, &group->pool);
  require(r, !r->error && are_values(group->program, &group->pool, own->tiles) &&
                 are_partitions(group->program, &group->pool, own->variants));
  for (int32_t f = 0; f < forests && !r->error; f++) {
    ckh_rank_plan *plans = group->plan + f * own->blocks;
    fill_plan(r, model->forest + f, group, plans);
    for (int32_t b = 1; b < own->blocks; b++) plans[b] = plans[0];
  }
  for (int32_t b = 0; b < own->blocks && !r->error; b++) fill_block(r, model, group, b);
  if (r->error) return;
  group->block_count = own->blocks;
  seen = (unsigned char *)cleared(r, group->own.kernel_count, 1);
  require(r, seen && are_all_in_blocks(group, seen));
  free(seen);
}

static void fill_group(reader *r, const ckh_model *model, ckh_group *group) {
  const ckh_facts *facts = model->head.facts;
  const ckh_group_record *own;
  const int32_t kernels = model->head.name_count - 2;
  int32_t count;
  take_group(r, &group->own);
  require(r, group->own.group_count == 1);
  own = group->own.group;
  count = group->own.kernel_count;
  if (r->error || !count) return; /* a kind of problems that no kernel is for */
  require(r, group->own.decision_count == count && own->program >= 0 && own->program < facts->programs);
  require(r, own->tiles >= 1 && own->tiles <= count && own->variants >= 1 && own->variants <= count &&
                 own->blocks >= 1 && own->blocks <= own->tiles && own->reasons >= 0 && own->reasons <= MAX_REASONS);
  if (r->error) return;
  group->program = model->program + own->program;
  require(r, within(group->own.kernel, count, 0, kernels) && are_decisions(group->program, &group->own));
  if (!r->error) fill_pool(r, model, group);
}

/* ---- the whole ---- */

/* Whether there is none, or a scale, ascending distances from 0 on, and as many shares, from 1 on and never rising. */
static int is_calibration(const double *table, int32_t count) {
  const int32_t rows = count / 2;
  if (!count) return 1;
  if (count % 2 == 0 || !(table[0] > 0 && table[0] - table[0] == 0)) return 0;
  for (int32_t i = 0; i < rows; i++) {
    const double *gap = table + 1 + i, *share = gap + rows;
    if (!(i ? gap[0] > gap[-1] && gap[0] - gap[0] == 0 : gap[0] == 0)) return 0;
    if (!(i ? share[0] <= share[-1] && share[0] > 0 : share[0] == 1)) return 0;
  }
  return 1;
}

static void fill_head(reader *r, ckh_head *head) {
  const ckh_facts *facts;
  take_head(r, head);
  require(r, !r->error && head->facts_count == 1 && head->name_count >= 2 && head->text_count >= 1 &&
                 !head->text[head->text_count - 1] && within(head->name, head->name_count, 0, head->text_count) &&
                 head->limit_count <= CKH_MOST_SIZES &&
                 is_calibration(head->calibration, head->calibration_count));
  if (r->error) return;
  facts = head->facts;
  require(r, facts->kind >= 0 && facts->forests >= 1 && facts->forests <= CKH_MOST_FORESTS &&
                 facts->tflops >= -1 && facts->tflops < facts->forests && facts->timed >= 0 && facts->groups >= 0 &&
                 facts->groups <= MAX_GROUPS && facts->programs >= 0 && facts->programs <= MAX_PROGRAMS);
}

static int check_header(const void *data, size_t bytes) {
  header head;
  uint32_t checksum;
  if (bytes < sizeof head) return CKH_ERROR_DAMAGED;
  memcpy(&head, data, sizeof head);
  if (memcmp(head.magic, "CKHMODEL", sizeof head.magic) || head.byte_order != BYTE_ORDER_MARK) return CKH_ERROR_DAMAGED;
  if (head.version != VERSION) return CKH_ERROR_VERSION;
  if (head.bytes != bytes || head.unused) return CKH_ERROR_DAMAGED;
  checksum = crc32_of((const unsigned char *)data + sizeof head, bytes - sizeof head);
  return head.checksum == checksum ? CKH_OK : CKH_ERROR_DAMAGED;
}

int ckh_fill(ckh_model *model, const void *data, size_t bytes) {
  const ckh_facts *facts;
  reader whole, *r = &whole;
  r->error = check_header(data, bytes);
  if (r->error) return r->error;
  r->at = (const unsigned char *)data + sizeof(header);
  r->left = bytes - sizeof(header);
  fill_head(r, &model->head);
  if (r->error) return r->error;
  facts = model->head.facts;
  model->program = (ckh_program *)cleared(r, facts->programs, sizeof *model->program);
  model->forest = (ckh_forest *)cleared(r, facts->forests, sizeof *model->forest);
  model->ranked = (ckh_rank_forest *)cleared(r, facts->forests, sizeof *model->ranked);
  model->group = (ckh_group *)cleared(r, facts->groups, sizeof *model->group);
  for (int32_t i = 0; i < facts->programs && !r->error; i++) {
    take_program(r, model->program + i);
    require(r, !r->error && ckh_is_program(model->program + i));
  }
  for (int32_t f = 0; f < facts->forests && !r->error; f++) fill_forest(r, model->forest + f, model->ranked + f);
  require(r, r->error || facts->tflops < 0 || model->forest[facts->tflops].exponents->form != CKH_FORM_INPUT);
  for (int32_t g = 0; g < facts->groups && !r->error; g++) fill_group(r, model, model->group + g);
  require(r, !r->left);
  return r->error;
}
