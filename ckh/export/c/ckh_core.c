/* Opening models, and ranking by sizes. */
#include "ckh.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"

/* ---- opening and closing ---- */

int ckh_open_memory(const void *data, size_t bytes, ckh_model **model) {
  ckh_model *opened;
  int error;
  if (!model) return CKH_ERROR_ARGUMENT;
  *model = NULL;
  if (!data || (uintptr_t)data % 8) return CKH_ERROR_ARGUMENT;
  opened = (ckh_model *)calloc(1, sizeof *opened);
  if (!opened) return CKH_ERROR_NO_MEMORY;
  error = ckh_fill(opened, data, bytes);
  if (error) {
    ckh_release(opened);
    free(opened);
    return error;
  }
  *model = opened;
  return CKH_OK;
}

static int read_all(FILE *file, void **data, size_t *bytes) {
  long size;
  if (fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) return CKH_ERROR_FILE;
  *bytes = (size_t)size;
  *data = malloc(*bytes + 8);
  if (!*data) return CKH_ERROR_NO_MEMORY;
  return fread(*data, 1, *bytes, file) == *bytes ? CKH_OK : CKH_ERROR_FILE;
}

int ckh_open_file(const char *path, ckh_model **model) {
  void *data = NULL;
  size_t bytes = 0;
  FILE *file;
  int error;
  if (!model) return CKH_ERROR_ARGUMENT;
  *model = NULL;
  if (!path) return CKH_ERROR_ARGUMENT;
  file = fopen(path, "rb");
  if (!file) return CKH_ERROR_FILE;
  error = read_all(file, &data, &bytes);
  fclose(file);
  if (!error) error = ckh_open_memory(data, bytes, model);
  if (error)
    free(data);
  else
    (*model)->owned = data;
  return error;
}

void ckh_close(ckh_model *model) {
  if (!model) return;
  ckh_release(model);
  free(model->owned);
  free(model);
}

int32_t ckh_kernel_count(const ckh_model *model) { return model ? model->names : 0; }

const char *ckh_kernel_name(const ckh_model *model, int32_t kernel) {
  if (!model || kernel < 0 || kernel >= model->names) return NULL;
  return model->text + model->name[2 + kernel];
}

const char *ckh_model_name(const ckh_model *model) { return model ? model->text + model->name[0] : NULL; }

const char *ckh_model_purpose(const ckh_model *model) { return model ? model->text + model->name[1] : NULL; }

const char *ckh_error_string(int error) {
  switch (error) {
    case CKH_OK: return "no error";
    case CKH_ERROR_ARGUMENT: return "an argument is NULL, not aligned to 8 bytes, or an unknown flag";
    case CKH_ERROR_ENUM: return "unknown direction, dtype, layout or number of dimensions";
    case CKH_ERROR_SIZE: return "a size of the problem is out of range, or its sizes do not go together";
    case CKH_ERROR_OTHER: return "the model is for another operation, direction, dtype or layout";
    case CKH_ERROR_NO_KERNEL: return "no kernel applies to the problem";
    case CKH_ERROR_NO_MEMORY: return "not enough memory";
    case CKH_ERROR_FILE: return "the file cannot be read";
    case CKH_ERROR_DAMAGED: return "the data are no model, or a damaged one";
    case CKH_ERROR_VERSION: return "the model was exported with other sources";
    case CKH_ERROR_NO_MODEL: return "no model of this name is embedded";
    default: return "unknown error";
  }
}

/* ---- what ranking works with, kept from one call to the next ---- */

typedef struct {
  double *constants, *rows, *score[2], *of_block;
  uint8_t *condition;
  int32_t *verdict, *order;
  void **state; /* of each forest and block */
} workspace;

void ckh_free_workspace(void *freed, size_t states) {
  workspace *w = (workspace *)freed;
  if (!w) return;
  for (size_t i = 0; w->state && i < states; i++) ckh_rank_close(w->state[i]);
  free(w->state);
  free(w->constants);
  free(w->rows);
  free(w->score[0]);
  free(w->score[1]);
  free(w->of_block);
  free(w->condition);
  free(w->verdict);
  free(w->order);
  free(w);
}

static void *room(int32_t count, size_t size) { return malloc((size_t)count * size + 8); }

static workspace *new_workspace(const ckh_model *model, const ckh_group *group) {
  const size_t states = (size_t)group->blocks * (size_t)model->forests;
  workspace *w = (workspace *)calloc(1, sizeof *w);
  int32_t tiles = 0;
  int is_complete;
  if (!w) return NULL;
  for (int32_t b = 0; b < group->blocks; b++)
    if (group->block[b].tiles > tiles) tiles = group->block[b].tiles;
  w->state = (void **)calloc(states, sizeof *w->state);
  w->constants = (double *)room(group->program->constants, sizeof(double));
  w->rows = (double *)room(group->program->rows, (size_t)tiles * sizeof(double));
  w->score[0] = (double *)room(group->candidates, sizeof(double));
  w->score[1] = (double *)room(group->candidates, sizeof(double));
  w->of_block = (double *)room(group->candidates, sizeof(double));
  w->condition = (uint8_t *)room(group->program->conditions, 1);
  w->verdict = (int32_t *)room(group->decisions, sizeof(int32_t));
  w->order = (int32_t *)room(group->candidates, sizeof(int32_t));
  is_complete = w->state && w->constants && w->rows && w->score[0] && w->score[1] && w->of_block && w->condition &&
                w->verdict && w->order;
  for (int32_t f = 0; is_complete && f < model->forests; f++)
    for (int32_t b = 0; is_complete && b < group->blocks; b++) {
      const size_t i = (size_t)f * (size_t)group->blocks + (size_t)b;
      w->state[i] = ckh_rank_open(model->forest + f, group->plan + i);
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
  ckh_free_workspace(w, (size_t)group->blocks * (size_t)model->forests);
}
#else /* without atomic operations nothing is kept */
static workspace *borrow(const ckh_model *model, const ckh_group *group) { return new_workspace(model, group); }

static void give_back(const ckh_model *model, const ckh_group *group, workspace *w) {
  ckh_free_workspace(w, (size_t)group->blocks * (size_t)model->forests);
}
#endif

/* ---- ranking ---- */

/* Where deciding ends: of each step, and of a candidate once that of all steps is known. */
static int decide(const ckh_group *group, workspace *w, const int64_t *size) {
  const int error = group->program->decide(group->program, size, w->condition);
  for (int32_t i = 0; !error && i < group->decisions; i++) {
    const int32_t *step = group->tree + 3 * (size_t)i, next = step[w->condition[step[0]] ? 1 : 2];
    w->verdict[i] = next < 0 ? next : w->verdict[next];
  }
  return error;
}

static int32_t verdict_of(const ckh_group *group, const workspace *w, int32_t candidate) {
  const int32_t begin = group->decision[candidate];
  return begin < 0 ? begin : w->verdict[begin];
}

/* The candidates that apply, to `order`; returns how many. */
static int32_t choose(const ckh_group *group, workspace *w) {
  int32_t count = 0;
  for (int32_t i = 0; i < group->candidates; i++)
    if (verdict_of(group, w, i) == CKH_APPLIES) w->order[count++] = i;
  return count;
}

static int score(const ckh_model *model, const ckh_group *group, workspace *w, const double *size, int32_t forests) {
  for (int32_t b = 0; b < group->blocks; b++) {
    const ckh_block *block = group->block + b;
    const int is_all = block->candidates == group->candidates;
    if (group->program->features(group->program, size, group->leaf, (size_t)block->first, (size_t)block->tiles,
                                 (size_t)group->tiles, w->constants, w->rows))
      return CKH_ERROR_NO_MEMORY;
    for (int32_t f = 0; f < forests; f++) {
      double *out = is_all ? w->score[f] : w->of_block;
      if (ckh_rank_scores(w->state[f * group->blocks + b], 1, w->constants, w->rows, out, block->candidates, 0))
        return CKH_ERROR_NO_MEMORY;
      for (int32_t i = 0; !is_all && i < block->candidates; i++) w->score[f][block->candidate[i]] = out[i];
    }
  }
  for (int32_t f = 0; f < forests; f++)
    for (int32_t i = 0; model->is_log[f] && i < group->candidates; i++) w->score[f][i] = expm1(w->score[f][i]);
  return CKH_OK;
}

static int comes_before(const double *by, int32_t a, int32_t b) {
  if (by[a] > by[b]) return 1;
  return by[a] == by[b] && a < b;
}

/* Lets an entry of a heap sink to where none below it comes before it. */
static void sink(int32_t *heap, int32_t count, int32_t at, const double *by) {
  const int32_t moved = heap[at];
  for (int32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && comes_before(by, heap[child + 1], heap[child])) child++;
    if (!comes_before(by, heap[child], moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static void write_best(const ckh_model *model, const ckh_group *group, workspace *w, int32_t count, double flops,
                       int is_told, ckh_choice *choices, size_t capacity) {
  const double *by = w->score[0];
  int32_t left = count;
  for (int32_t i = count / 2; i-- > 0;) sink(w->order, count, i, by);
  for (size_t place = 0; place < capacity && left > 0; place++) {
    const int32_t best = w->order[0];
    ckh_choice *choice = choices + place;
    w->order[0] = w->order[--left];
    if (left) sink(w->order, left, 0, by);
    choice->kernel = group->name[best];
    choice->score = by[best];
    choice->tflops = is_told ? w->score[model->tflops][best] : (double)NAN;
    choice->latency_ms = is_told ? flops / (choice->tflops * 1e9) : (double)NAN;
  }
}

static int is_key(const ckh_group *group, const int32_t *key) {
  for (int i = 0; i < CKH_KEYS; i++) /* 0 stands for the operation's own layout, which comes first */
    if (group->key[i] != key[i] && !(i == 2 && key[i] == 0)) return 0;
  return 1;
}

/* The group of a problem that is possible, and in which there are kernels. */
static int find_group(const ckh_model *model, const int32_t *key, const int64_t *size, const ckh_group **found) {
  const ckh_group *group = model->group;
  while (group < model->group + model->groups && !is_key(group, key)) group++;
  if (group == model->group + model->groups) return CKH_ERROR_OTHER;
  if (!group->candidates) return CKH_ERROR_NO_KERNEL;
  *found = group;
  return group->program->check(group->program, size);
}

int ckh_reasons(const ckh_model *model, const int32_t *key, const int64_t *size, int32_t *reason, size_t capacity,
                size_t *count) {
  const ckh_group *group;
  workspace *w;
  int error = find_group(model, key, size, &group);
  *count = 0;
  if (error) return error;
  w = borrow(model, group);
  if (!w) return CKH_ERROR_NO_MEMORY;
  error = decide(group, w, size);
  if (!error) *count = (size_t)group->candidates;
  for (size_t i = 0; i < *count && i < capacity; i++) {
    const int32_t verdict = verdict_of(group, w, (int32_t)i);
    reason[i] = verdict == CKH_APPLIES ? -1 : CKH_REFUSED - verdict;
  }
  give_back(model, group, w);
  return error;
}

int ckh_rank_sizes(const ckh_model *model, const int32_t *key, const int64_t *size, uint32_t flags,
                   ckh_choice *choices, size_t capacity, size_t *count) {
  const ckh_group *group;
  const int is_told = model->tflops >= 0 && !(flags & CKH_ORDER_ONLY);
  double sizes[CKH_MOST_SIZES], flops = 0;
  workspace *w;
  int error;
  int32_t chosen;
  error = find_group(model, key, size, &group);
  if (!error && is_told) error = group->program->flops(group->program, size, &flops);
  if (error) return error;
  for (int32_t i = 0; i < group->program->sizes; i++) sizes[i] = (double)size[i];
  w = borrow(model, group);
  if (!w) return CKH_ERROR_NO_MEMORY;
  error = decide(group, w, size);
  chosen = error ? 0 : choose(group, w);
  if (!error && !chosen) error = CKH_ERROR_NO_KERNEL;
  if (!error) {
    error = score(model, group, w, sizes, is_told ? model->tflops + 1 : 1);
    if (error) { /* what ran out of memory cannot be used again */
      ckh_free_workspace(w, (size_t)group->blocks * (size_t)model->forests);
      return error;
    }
    write_best(model, group, w, chosen, flops, is_told, choices, capacity);
    *count = (size_t)chosen;
  }
  give_back(model, group, w);
  return error;
}
