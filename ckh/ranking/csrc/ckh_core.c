/* Ranking by sizes. */
#include "ckh.h"

#include <math.h>
#include <stdlib.h>

#include "ckh_internal.h"

enum { CALIBRATED_FIRST = 4 };           /* FIRST of ckh/learn/models/calibration.py */
enum { SPEEDS_ALONE = 2 * CKH_RANK_FEW };  /* of more kernels speeds are computed with all others' */
enum { CELLS = 1 << 17, TOGETHER = 64 }; /* values of features that are held at once; problems: C likes multiples of it */

/* ---- what ranking works with, kept from one call to the next ---- */

typedef struct {
  ckh_registers *registers;
  const ckh_block *fixed; /* the block whose values the registers have */
  size_t together;        /* problems that there is room for */
  double *constants, *rows, *of_block, *score[CKH_MOST_FORESTS];
  uint8_t *condition;
  int32_t *verdict, *order;
  int32_t *block_of, *place_of; /* of each candidate: its block, and its place there */
  void **state;                 /* of each forest and block */
} workspace;

static size_t states_of(const ckh_model *model, const ckh_group *group) {
  return (size_t)group->block_count * (size_t)model->head.facts->forests;
}

void ckh_free_workspace(void *freed, size_t states) {
  workspace *w = (workspace *)freed;
  if (!w) return;
  for (size_t i = 0; w->state && i < states; i++) ckh_rank_close(w->state[i]);
  ckh_close_registers(w->registers);
  free(w->state);
  free(w->constants);
  free(w->rows);
  for (int f = 0; f < CKH_MOST_FORESTS; f++) free(w->score[f]);
  free(w->of_block);
  free(w->condition);
  free(w->verdict);
  free(w->order);
  free(w->block_of);
  free(w->place_of);
  free(w);
}

static void *room(size_t count, size_t size) { return malloc(count * size + 8); }

static int32_t most_tiles(const ckh_group *group) {
  int32_t tiles = 0;
  for (int32_t b = 0; b < group->block_count; b++)
    if (group->block[b].range->tiles > tiles) tiles = group->block[b].range->tiles;
  return tiles;
}

/* Make room for problems that are ranked together. */
static int make_room(const ckh_group *group, workspace *w, size_t together) {
  const size_t tiles = (size_t)most_tiles(group);
  if (together <= w->together) return CKH_OK;
  free(w->constants);
  free(w->rows);
  free(w->of_block);
  w->constants = (double *)room(together * (size_t)group->program->counts->constants, sizeof(double));
  w->rows = (double *)room(together * (size_t)group->program->counts->rows * tiles, sizeof(double));
  w->of_block = (double *)room(together * (size_t)group->own.kernel_count, sizeof(double));
  w->together = w->constants && w->rows && w->of_block ? together : 0;
  return w->together ? CKH_OK : CKH_ERROR_NO_MEMORY;
}

static workspace *new_workspace(const ckh_model *model, const ckh_group *group) {
  const size_t candidates = (size_t)group->own.kernel_count, states = states_of(model, group);
  const int32_t last = model->head.facts->tflops > 0 ? model->head.facts->tflops : 0; /* forest for one problem */
  workspace *w = (workspace *)calloc(1, sizeof *w);
  int is_complete;
  if (!w) return NULL;
  w->state = (void **)calloc(states, sizeof *w->state);
  w->registers = ckh_open_registers(group->program, most_tiles(group));
  w->condition = (uint8_t *)room((size_t)group->program->counts->conditions, 1);
  w->verdict = (int32_t *)room((size_t)group->own.step_count, sizeof(int32_t));
  w->order = (int32_t *)room(candidates, sizeof(int32_t));
  w->block_of = (int32_t *)room(candidates, sizeof(int32_t));
  w->place_of = (int32_t *)room(candidates, sizeof(int32_t));
  is_complete = w->state && w->registers && w->condition && w->verdict && w->order && w->block_of && w->place_of &&
                !make_room(group, w, 1);
  for (int32_t b = 0; is_complete && b < group->block_count; b++)
    for (int32_t i = 0; i < group->block[b].candidate_count; i++) {
      w->block_of[group->block[b].candidate[i]] = b;
      w->place_of[group->block[b].candidate[i]] = i;
    }
  for (int32_t f = 0; is_complete && f <= last; f++) {
    w->score[f] = (double *)room(candidates, sizeof(double));
    is_complete = w->score[f] != NULL;
  }
  for (int32_t f = 0; is_complete && f < model->head.facts->forests; f++)
    for (int32_t b = 0; is_complete && b < group->block_count; b++) {
      const size_t i = (size_t)f * (size_t)group->block_count + (size_t)b;
      w->state[i] = ckh_rank_open(model->ranked + f, group->plan + i);
      is_complete = w->state[i] != NULL;
    }
  if (is_complete) return w;
  ckh_free_workspace(w, states);
  return NULL;
}

#if defined(__GNUC__)
static workspace *borrow(const ckh_model *model, const ckh_group *group) {
  for (int i = 0; i < CKH_IDLE; i++) {
    void *found = __atomic_load_n(group->idle + i, __ATOMIC_RELAXED);
    if (found && (found = __atomic_exchange_n(group->idle + i, NULL, __ATOMIC_ACQ_REL)) != NULL)
      return (workspace *)found;
  }
  return new_workspace(model, group);
}

static void give_back(const ckh_model *model, const ckh_group *group, workspace *w) {
  for (int i = 0; i < CKH_IDLE; i++) {
    void *empty = NULL;
    if (__atomic_compare_exchange_n(group->idle + i, &empty, (void *)w, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return;
  }
  ckh_free_workspace(w, states_of(model, group));
}
#else /* without atomic operations nothing is kept */
static workspace *borrow(const ckh_model *model, const ckh_group *group) { return new_workspace(model, group); }

static void give_back(const ckh_model *model, const ckh_group *group, workspace *w) {
  ckh_free_workspace(w, states_of(model, group));
}
#endif

/* ---- ranking ---- */

/* Where deciding ends: of each step, and of a candidate once that of all steps is known. */
static int decide(const ckh_group *group, workspace *w, const int64_t *size) {
  const int error = ckh_conditions(group->program, size, w->condition);
  for (int32_t i = 0; !error && i < group->own.step_count; i++) {
    const ckh_step *step = group->own.step + i;
    const int32_t next = w->condition[step->condition] ? step->yes : step->no;
    w->verdict[i] = next < 0 ? next : w->verdict[next];
  }
  return error;
}

static int32_t verdict_of(const ckh_group *group, const workspace *w, int32_t candidate) {
  const int32_t begin = group->own.decision[candidate];
  return begin < 0 ? begin : w->verdict[begin];
}

/* The candidates that apply, to `order`; returns how many. */
static int32_t choose(const ckh_group *group, workspace *w) {
  int32_t count = 0;
  for (int32_t i = 0; i < group->own.kernel_count; i++)
    if (verdict_of(group, w, i) == CKH_APPLIES) w->order[count++] = i;
  return count;
}

/* The features of a block's tiles for a problem. */
static void compute_features(const ckh_group *group, workspace *w, int32_t b, const double *size, double *constants,
                             double *rows) {
  const ckh_block *block = group->block + b;
  if (w->fixed != block) ckh_fix_registers(w->registers, group->pool.values, group->own.group->tiles, *block->range);
  w->fixed = block;
  ckh_features(w->registers, size, constants, rows);
}

/* The class of a variant in a partition. */
static int32_t class_of(const ckh_rank_plan *plan, int32_t partition, int32_t variant) {
  const size_t words = ((size_t)plan->variants + 63) / 64;
  int32_t found = plan->class_starts[partition];
  while (!(plan->class_masks[(size_t)found * words + (size_t)variant / 64] >> variant % 64 & 1)) found++;
  return found - plan->class_starts[partition];
}

/* The value of a forest's first input for a candidate of a block, by its place there. */
static double input_of(const ckh_rank_plan *plan, const double *constants, const double *rows, int32_t place) {
  const ckh_source *source = (const ckh_source *)plan->family;
  int32_t row = source->source;
  if (source->kind == 0) return constants[row];
  if (source->partition >= 0) row += class_of(plan, source->partition, plan->variant_of[place]);
  return rows[(size_t)row * (size_t)plan->tiles + (size_t)plan->tile_of[place]];
}

/* Scores a block's candidates for problems whose features are computed, with one of the forests. */
static int score_forest(const ckh_model *model, const ckh_group *group, workspace *w, int32_t index, int32_t f,
                        size_t problems, double *out, int32_t portable) {
  const ckh_rank_plan *plan = group->plan + index;
  const size_t some = (size_t)plan->candidates, cells = (size_t)plan->rows * (size_t)plan->tiles;
  const int error =
      ckh_rank_scores(w->state[index], (int64_t)problems, w->constants, w->rows, out, (int64_t)some, portable);
  if (error || model->forest[f].exponents->form != CKH_FORM_INPUT) return error;
  for (size_t p = 0; p < problems; p++)
    for (size_t i = 0; i < some; i++)
      out[p * some + i] += input_of(plan, w->constants + p * (size_t)plan->constants, w->rows + p * cells, (int32_t)i);
  return CKH_RANK_OK;
}

/* Scores a block's candidates for problems that there is room for, with some of the forests. */
static int score_block(const ckh_model *model, const ckh_group *group, workspace *w, int32_t b, size_t problems,
                       const double *size, int32_t forests, double *const *scores, int32_t portable) {
  const ckh_block *block = group->block + b;
  const ckh_counts *counts = group->program->counts;
  const size_t candidates = (size_t)group->own.kernel_count, some = (size_t)block->candidate_count;
  const size_t cells = (size_t)counts->rows * (size_t)block->range->tiles;
  for (size_t p = 0; p < problems; p++)
    compute_features(group, w, b, size + p * (size_t)counts->sizes, w->constants + p * (size_t)counts->constants,
                     w->rows + p * cells);
  for (int32_t f = 0; f < forests; f++) {
    const int is_all = some == candidates;
    double *out = is_all ? scores[f] : w->of_block;
    if (score_forest(model, group, w, f * group->block_count + b, f, problems, out, portable))
      return CKH_ERROR_NO_MEMORY;
    for (size_t p = 0; !is_all && p < problems; p++)
      for (size_t i = 0; i < some; i++) scores[f][p * candidates + (size_t)block->candidate[i]] = out[p * some + i];
  }
  return CKH_OK;
}

static int score(const ckh_model *model, const ckh_group *group, workspace *w, size_t problems, const double *size,
                 int32_t forests, double *const *scores, int32_t portable) {
  for (int32_t b = 0; b < group->block_count; b++) {
    const int error = score_block(model, group, w, b, problems, size, forests, scores, portable);
    if (error) return error;
  }
  for (int32_t f = 0; f < forests; f++) {
    const size_t all = problems * (size_t)group->own.kernel_count;
    if (model->forest[f].exponents->form != CKH_FORM_LOG) continue;
    for (size_t i = 0; i < all; i++) scores[f][i] = expm1(scores[f][i]);
  }
  return CKH_OK;
}

/* How many problems to rank at once. */
static size_t together_of(const ckh_group *group, size_t problems) {
  const ckh_counts *counts = group->program->counts;
  const size_t cells = (size_t)counts->constants + (size_t)counts->rows * (size_t)group->own.group->tiles;
  size_t together = CELLS / (cells ? cells : 1);
  if (together > TOGETHER) together -= together % TOGETHER;
  if (together > problems) together = problems;
  return together ? together : 1;
}

/* Scores CKH_RANK_FEW candidates of a block at most, those of `chosen` that are in it, for one problem. */
static int score_few_of_block(const ckh_model *model, const ckh_group *group, workspace *w, int32_t f, int32_t b,
                              const double *size, const int32_t *chosen, int32_t count, double *scores) {
  const int is_input = model->forest[f].exponents->form == CKH_FORM_INPUT;
  const int32_t index = f * group->block_count + b;
  int32_t place[CKH_RANK_FEW], of[CKH_RANK_FEW], found = 0;
  double some[CKH_RANK_FEW];
  for (int32_t i = 0; i < count; i++) {
    if (w->block_of[chosen[i]] != b) continue;
    of[found] = i;
    place[found++] = w->place_of[chosen[i]];
  }
  if (!found) return CKH_OK;
  compute_features(group, w, b, size, w->constants, w->rows);
  if (ckh_rank_few(w->state[index], w->constants, w->rows, place, found, some)) return CKH_ERROR_NO_MEMORY;
  for (int32_t i = 0; i < found; i++) {
    scores[of[i]] = some[i];
    if (is_input) scores[of[i]] += input_of(group->plan + index, w->constants, w->rows, place[i]);
  }
  return CKH_OK;
}

/* Scores some candidates for one problem with one forest: as `score`, to the last bit. */
static int score_some(const ckh_model *model, const ckh_group *group, workspace *w, int32_t f, const double *size,
                      const int32_t *chosen, int32_t count, double *scores) {
  for (int32_t at = 0; at < count; at += CKH_RANK_FEW) {
    const int32_t few = count - at < CKH_RANK_FEW ? count - at : CKH_RANK_FEW;
    for (int32_t b = 0; b < group->block_count; b++)
      if (score_few_of_block(model, group, w, f, b, size, chosen + at, few, scores + at)) return CKH_ERROR_NO_MEMORY;
  }
  for (int32_t i = 0; model->forest[f].exponents->form == CKH_FORM_LOG && i < count; i++) scores[i] = expm1(scores[i]);
  return CKH_OK;
}

/* What ran out of memory cannot be used again. */
static void done_with(const ckh_model *model, const ckh_group *group, workspace *w, int error) {
  if (error)
    ckh_free_workspace(w, states_of(model, group));
  else
    give_back(model, group, w);
}

int ckh_score(const ckh_model *model, int32_t index, size_t problems, const double *size, int32_t forests,
              double *scores, int32_t portable) {
  const ckh_group *group = model->group + index;
  const size_t candidates = (size_t)group->own.kernel_count, step = together_of(group, problems);
  workspace *w = borrow(model, group);
  int error = w ? make_room(group, w, step) : CKH_ERROR_NO_MEMORY;
  for (size_t p = 0; p < problems && !error; p += step) {
    double *part[CKH_MOST_FORESTS];
    for (int32_t f = 0; f < forests; f++) part[f] = scores + ((size_t)f * problems + p) * candidates;
    error = score(model, group, w, problems - p < step ? problems - p : step,
                  size + p * (size_t)group->program->counts->sizes, forests, part, portable);
  }
  if (w) done_with(model, group, w, error);
  return error;
}

int ckh_score_some(const ckh_model *model, int32_t index, int32_t forest, size_t problems, const double *size,
                   const int32_t *candidate, int32_t count, double *scores) {
  const ckh_group *group = model->group + index;
  const size_t sizes = (size_t)group->program->counts->sizes, some = (size_t)count;
  workspace *w = borrow(model, group);
  int error = w ? CKH_OK : CKH_ERROR_NO_MEMORY;
  for (size_t p = 0; p < problems && !error; p++)
    error = score_some(model, group, w, forest, size + p * sizes, candidate + p * some, count, scores + p * some);
  if (w) done_with(model, group, w, error);
  return error;
}

static int comes_before(const double *by, int32_t a, int32_t b) {
  if (by[a] > by[b]) return 1;
  return by[a] == by[b] && a < b;
}

/* Lets an entry of a heap, whose top comes last, sink to where none below it comes after it. */
static void sink(int32_t *heap, int32_t count, int32_t at, const double *by) {
  const int32_t moved = heap[at];
  for (int32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && comes_before(by, heap[child], heap[child + 1])) child++;
    if (!comes_before(by, moved, heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

/* The share of the best kernel's speed at a distance to its score: between two of the table on a line. */
static double share_at(const double *gaps, int32_t rows, double gap) {
  const double *shares = gaps + rows;
  int32_t above = 0;
  double share;
  if (gap >= gaps[rows - 1]) return shares[rows - 1];
  while (above < rows && gaps[above] <= gap) above++;
  share = shares[above - 1] -
          (shares[above - 1] - shares[above]) * ((gap - gaps[above - 1]) / (gaps[above] - gaps[above - 1]));
  return share > shares[above] ? share : shares[above];
}

/* The speeds of the first kernels, each over its share, give that of the best; and that with shares all speeds. */
typedef struct {
  const double *table;
  int32_t rows;
  double best_score, level;
  int32_t seen;
} calibration;

static double calibrated_share(const calibration *c, double score) {
  return share_at(c->table + 1, c->rows, c->best_score - score);
}

static void see(calibration *c, double score, double tflops) {
  if (!c->rows || c->seen == CALIBRATED_FIRST) return;
  if (!c->seen) c->best_score = score;
  c->level += tflops / calibrated_share(c, score);
  c->seen++;
}

static double calibrated(const calibration *c, double score, double tflops) {
  if (!c->table) return tflops;
  if (!c->rows) return tflops * c->table[0];
  return c->level / c->seen * c->table[0] * calibrated_share(c, score);
}

/* Sorts the first of the candidates in `order` to its begin, and forgets the others; returns how many these are. */
static int32_t sort_first(workspace *w, int32_t count, size_t wanted) {
  const double *by = w->score[0];
  const int32_t kept = wanted < (size_t)count ? (int32_t)wanted : count;
  int32_t *first = w->order;
  for (int32_t i = kept / 2; i-- > 0;) sink(first, kept, i, by);
  for (int32_t i = kept; kept && i < count; i++) {
    if (!comes_before(by, first[i], first[0])) continue;
    first[0] = first[i];
    sink(first, kept, 0, by);
  }
  for (int32_t left = kept - 1; left > 0; left--) {
    const int32_t last = first[0];
    first[0] = first[left];
    sink(first, left, 0, by);
    first[left] = last;
  }
  return kept;
}

/* Computes the speeds of some candidates alone. */
static int predict_speeds(const ckh_model *model, const ckh_group *group, workspace *w, const double *size, const int32_t *first,
                int32_t count) {
  const int32_t tflops = model->head.facts->tflops;
  double speed[SPEEDS_ALONE];
  const int error = score_some(model, group, w, tflops, size, first, count, speed);
  for (int32_t i = 0; !error && i < count; i++) w->score[tflops][first[i]] = speed[i];
  return error;
}

/* Writes the first candidates: `sorted` of them stand at the begin of `order`. */
static void write_best(const ckh_model *model, const ckh_group *group, const workspace *w, int32_t sorted,
                       double flops, int has_speeds, ckh_choice *choices, size_t capacity) {
  const ckh_head *head = &model->head;
  calibration c = {head->calibration_count ? head->calibration : NULL, head->calibration_count / 2, 0, 0, 0};
  const size_t timed = head->facts->timed ? (size_t)head->facts->timed : (size_t)-1;
  for (int32_t place = 0; place < sorted; place++) {
    const int32_t best = w->order[place];
    const double score = w->score[0][best], tflops = has_speeds ? w->score[head->facts->tflops][best] : (double)NAN;
    see(&c, score, tflops);
    if ((size_t)place >= capacity) continue;
    choices[place].kernel = group->own.kernel[best];
    choices[place].score = score;
    choices[place].tflops = tflops;
    choices[place].latency_ms = (double)NAN;
  }
  for (size_t i = 0; has_speeds && i < (size_t)sorted && i < capacity; i++) {
    choices[i].tflops = i < timed ? calibrated(&c, choices[i].score, choices[i].tflops) : (double)NAN;
    choices[i].latency_ms = flops / (choices[i].tflops * 1e9);
  }
}

static int is_key(const ckh_group *group, const int32_t *key) {
  const ckh_group_record *own = group->own.group;
  const int is_layout = own->layout == key[2] || key[2] == 0; /* the operation's own layout, which comes first */
  return own->direction == key[0] && own->dtype == key[1] && is_layout && own->ndim == key[3];
}

/* Finds the group of a problem that is possible, and decides which of its candidates apply. */
static int begin(const ckh_model *model, const int32_t *key, const int64_t *size, const ckh_group **found,
                 workspace **w) {
  const ckh_group *group = model->group, *end = model->group + model->head.facts->groups;
  int error;
  while (group < end && !is_key(group, key)) group++;
  if (group == end || !group->own.kernel_count) return group == end ? CKH_ERROR_OTHER : CKH_ERROR_NO_KERNEL;
  error = ckh_check_sizes(group->program, size);
  if (error) return error;
  *found = group;
  *w = borrow(model, group);
  if (!*w) return CKH_ERROR_NO_MEMORY;
  error = decide(group, *w, size);
  if (error) give_back(model, group, *w);
  return error;
}

int ckh_count_reasons(const ckh_model *model, const int32_t *key, const int64_t *size, const uint8_t *kind,
                      int32_t candidates, int32_t reasons, int32_t *first, int32_t *count) {
  const ckh_group *group;
  workspace *w;
  int error = begin(model, key, size, &group, &w);
  if (error) return error;
  if (group->own.kernel_count != candidates || group->own.group->reasons != reasons) error = CKH_ERROR_ARGUMENT;
  for (int32_t i = error ? 0 : candidates; i-- > 0;) {
    const int32_t verdict = CKH_APPLIES - verdict_of(group, w, i), at = verdict < reasons ? verdict : reasons;
    first[at] = i;
    count[(size_t)kind[i] * ((size_t)reasons + 1) + (size_t)at]++;
  }
  give_back(model, group, w);
  return error;
}

/* Whether a problem is so far outside of what the model learned from that it expects no speed. */
static int is_far(const ckh_head *head, const int64_t *size) {
  for (int32_t i = 0; i < head->limit_count; i++)
    if ((double)size[i] > head->limit[i]) return 1;
  return 0;
}

/* Ranks the candidates that apply, of which there are some. */
static int rank_chosen(const ckh_model *model, const ckh_group *group, workspace *w, const int64_t *size,
                       int32_t chosen, double flops, int has_speeds, ckh_choice *choices, size_t capacity) {
  const size_t least = has_speeds && model->head.calibration_count > 1 ? CALIBRATED_FIRST : 0;
  const size_t wanted = capacity > least ? capacity : least;
  const int32_t tflops = model->head.facts->tflops;
  const int is_alone = has_speeds && tflops > 0 && wanted <= SPEEDS_ALONE;
  double sizes[CKH_MOST_SIZES];
  int32_t sorted;
  int error;
  for (int32_t i = 0; i < group->program->counts->sizes; i++) sizes[i] = (double)size[i];
  error = score(model, group, w, 1, sizes, has_speeds && !is_alone ? tflops + 1 : 1, w->score, 0);
  if (error) return error;
  sorted = sort_first(w, chosen, wanted);
  if (is_alone) error = predict_speeds(model, group, w, sizes, w->order, sorted);
  if (!error) write_best(model, group, w, sorted, flops, has_speeds, choices, capacity);
  return error;
}

int ckh_rank_sizes(const ckh_model *model, const int32_t *key, const int64_t *size, uint32_t flags,
                   ckh_choice *choices, size_t capacity, size_t *count) {
  const ckh_group *group;
  const int has_speeds = model->head.facts->tflops >= 0 && !(flags & CKH_ORDER_ONLY);
  double flops = 0;
  workspace *w;
  int32_t chosen;
  int failed = CKH_OK, error = begin(model, key, size, &group, &w);
  if (error) return error;
  if (has_speeds) error = ckh_flops(group->program, size, &flops);
  chosen = error ? 0 : choose(group, w);
  if (!error && !chosen) error = CKH_ERROR_NO_KERNEL;
  if (!error) {
    failed = rank_chosen(model, group, w, size, chosen, flops, has_speeds && !is_far(&model->head, size), choices, capacity);
    if (!failed) *count = (size_t)chosen;
  }
  done_with(model, group, w, failed);
  return error ? error : failed;
}
