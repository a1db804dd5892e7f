/* Ranking problems of the kinds that there are. */
#include "ckh.h"

#include <string.h>

#include "ckh_internal.h"

#define VALUE(name, value) problem->name = value;
#define PUT(name, value) *size++ = problem->name;

void ckh_conv_defaults(ckh_conv_problem *problem) {
  if (!problem) return;
  problem->direction = CKH_FORWARD;
  problem->dtype = CKH_CONV_DTYPE;
  problem->layout = CKH_LAYOUT_DEFAULT;
  problem->ndim = CKH_CONV_NDIM;
  CKH_CONV_SIZES(VALUE)
}

void ckh_gemm_defaults(ckh_gemm_problem *problem) {
  if (!problem) return;
  problem->dtype = CKH_GEMM_DTYPE;
  problem->layout = CKH_GEMM_LAYOUT;
  CKH_GEMM_SIZES(VALUE)
}

static void put_conv(const ckh_conv_problem *problem, int64_t *size) { CKH_CONV_SIZES(PUT) }

static void put_gemm(const ckh_gemm_problem *problem, int64_t *size) { CKH_GEMM_SIZES(PUT) }

/* Whether a model is for a direction and dtype. */
static int is_for(const ckh_model *model, int32_t kind, int32_t direction, int32_t dtype) {
  const ckh_facts *facts = model->head.facts;
  return facts->kind == kind && (facts->direction < 0 || facts->direction == direction) &&
         (facts->dtype < 0 || facts->dtype == dtype);
}

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
  int64_t size[CKH_MOST_SIZES] = {0};
  int32_t key[CKH_KEYS];
  const int error = check_arguments(model, problem, flags, choices, capacity, count);
  if (error) return error;
  if (problem->direction < 0 || problem->direction >= CKH_DIRECTIONS || problem->dtype < 0 ||
      problem->dtype >= CKH_DTYPES || problem->layout < 0 || problem->layout >= CKH_LAYOUTS || problem->ndim < 2 ||
      problem->ndim > 3)
    return CKH_ERROR_ENUM;
  if (!is_for(model, CKH_CONV, problem->direction, problem->dtype)) return CKH_ERROR_OTHER;
  key[0] = problem->direction;
  key[1] = problem->dtype;
  key[2] = problem->layout;
  key[3] = problem->ndim;
  put_conv(problem, size);
  return ckh_rank_sizes(model, key, size, flags, choices, capacity, count);
}

int ckh_rank_gemm(const ckh_model *model, const ckh_gemm_problem *problem, uint32_t flags, ckh_choice *choices,
                  size_t capacity, size_t *count) {
  int64_t size[CKH_MOST_SIZES] = {0};
  int32_t key[CKH_KEYS];
  const int error = check_arguments(model, problem, flags, choices, capacity, count);
  if (error) return error;
  if (problem->dtype < 0 || problem->dtype >= CKH_DTYPES || problem->layout < 0 ||
      problem->layout >= CKH_GEMM_LAYOUTS)
    return CKH_ERROR_ENUM;
  if (!is_for(model, CKH_GEMM, 0, problem->dtype)) return CKH_ERROR_OTHER;
  key[0] = 0;
  key[1] = problem->dtype;
  key[2] = problem->layout + 1;
  key[3] = 0;
  put_gemm(problem, size);
  return ckh_rank_sizes(model, key, size, flags, choices, capacity, count);
}
