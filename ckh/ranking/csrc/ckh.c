/* Ranking problems of the kinds that there are. */
#include "ckh.h"

#include <string.h>

#include "ckh_internal.h"

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

/* Whether a model is for a kind of problems, a direction and a dtype. */
static int is_for(const ckh_model *model, int32_t kind, const int32_t *key) {
  const ckh_facts *facts = model->head.facts;
  return facts->kind == kind && (facts->direction < 0 || facts->direction == key[0]) &&
         (facts->dtype < 0 || facts->dtype == key[1]);
}

#define DEFAULT_CODE(name, value, least, end, place, added) problem->name = value;
#define DEFAULT_SIZE(name, value) problem->name = value;
#define IS_NO_CODE(name, value, least, end, place, added) || problem->name < (least) || problem->name >= (end)
#define PUT_CODE(name, value, least, end, place, added) key[place] = problem->name + (added);
#define PUT_SIZE(name, value) *next++ = problem->name;

#define FUNCTIONS(kind, KIND, number) \
  void ckh_##kind##_defaults(ckh_##kind##_problem *problem) { \
    if (!problem) return; \
    CKH_##KIND##_CODES(DEFAULT_CODE) \
    CKH_##KIND##_SIZES(DEFAULT_SIZE) \
  } \
\
  int ckh_rank_##kind(const ckh_model *model, const ckh_##kind##_problem *problem, uint32_t flags, \
                      ckh_choice *choices, size_t capacity, size_t *count) { \
    int64_t size[CKH_MOST_SIZES] = {0}, *next = size; \
    int32_t key[CKH_KEYS] = {0}; \
    const int error = check_arguments(model, problem, flags, choices, capacity, count); \
    if (error) return error; \
    if (0 CKH_##KIND##_CODES(IS_NO_CODE)) return CKH_ERROR_ENUM; \
    CKH_##KIND##_CODES(PUT_CODE) \
    if (!is_for(model, number, key)) return CKH_ERROR_OTHER; \
    CKH_##KIND##_SIZES(PUT_SIZE) \
    return ckh_rank_sizes(model, key, size, flags, choices, capacity, count); \
  }
CKH_KINDS(FUNCTIONS)
