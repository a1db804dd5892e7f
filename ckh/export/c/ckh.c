/* Ranking problems of the kinds that there are, with programs that are part of the sources. */
#include "ckh.h"

#include <string.h>

#include "ckh_internal.h"

void ckh_read_programs(ckh_reader *r, ckh_model *model, uint64_t key) {
  if (!r->error && key != ckh_program_key) r->error = CKH_ERROR_VERSION;
  model->programs = ckh_programs;
  model->program_count = ckh_program_count;
}

void ckh_free_programs(ckh_model *model) { (void)model; }

int ckh_open_embedded(const char *name, ckh_model **model) {
  if (!model) return CKH_ERROR_ARGUMENT;
  *model = NULL;
  for (size_t i = 0; i < ckh_embedded_count; i++)
    if (!name || !strcmp(name, ckh_embedded[i].name))
      return ckh_open_memory(ckh_embedded[i].data, ckh_embedded[i].bytes, model);
  return CKH_ERROR_NO_MODEL;
}

static int check_arguments(const ckh_model *model, const void *problem, uint32_t flags, const ckh_choice *choices,
                           size_t capacity, size_t *count) {
  if (!count) return CKH_ERROR_ARGUMENT;
  *count = 0;
  return !model || !problem || (flags & ~(uint32_t)CKH_ORDER_ONLY) || (!choices && capacity) ? CKH_ERROR_ARGUMENT
                                                                                             : CKH_OK;
}

int ckh_rank_conv(const ckh_model *model, const ckh_conv_problem *problem, uint32_t flags, ckh_choice *choices,
                  size_t capacity, size_t *count) {
  int64_t size[CKH_MOST_SIZES];
  int32_t key[CKH_KEYS];
  const int error = check_arguments(model, problem, flags, choices, capacity, count);
  if (error) return error;
  if (problem->direction < 0 || problem->direction >= CKH_DIRECTIONS || problem->dtype < 0 ||
      problem->dtype >= CKH_DTYPES || problem->layout < 0 || problem->layout >= CKH_LAYOUTS || problem->ndim < 2 ||
      problem->ndim > 3)
    return CKH_ERROR_ENUM;
  if (model->kind != CKH_CONV || (model->direction >= 0 && model->direction != problem->direction) ||
      (model->dtype >= 0 && model->dtype != problem->dtype))
    return CKH_ERROR_OTHER;
  key[0] = problem->direction;
  key[1] = problem->dtype;
  key[2] = problem->layout;
  key[3] = problem->ndim;
  ckh_conv_sizes(problem, size);
  return ckh_rank_sizes(model, key, size, flags, choices, capacity, count);
}

int ckh_rank_gemm(const ckh_model *model, const ckh_gemm_problem *problem, uint32_t flags, ckh_choice *choices,
                  size_t capacity, size_t *count) {
  int64_t size[CKH_MOST_SIZES];
  int32_t key[CKH_KEYS];
  const int error = check_arguments(model, problem, flags, choices, capacity, count);
  if (error) return error;
  if (problem->dtype < 0 || problem->dtype >= CKH_DTYPES || problem->layout < 0 ||
      problem->layout >= CKH_GEMM_LAYOUTS)
    return CKH_ERROR_ENUM;
  if (model->kind != CKH_GEMM || (model->dtype >= 0 && model->dtype != problem->dtype)) return CKH_ERROR_OTHER;
  key[0] = 0;
  key[1] = problem->dtype;
  key[2] = problem->layout + 1;
  key[3] = 0;
  ckh_gemm_sizes(problem, size);
  return ckh_rank_sizes(model, key, size, flags, choices, capacity, count);
}
