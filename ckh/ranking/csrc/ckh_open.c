/* Opening and closing models, and what they are called. */
#include "ckh.h"

#include <stdio.h>
#include <stdlib.h>

#include "ckh_internal.h"

enum { NAMES = 2 }; /* before those of kernels: of the model, and its purpose */

int32_t ckh_abi(void) { return CKH_ABI; }

/* Frees what was filled, also after an error. */
static void release(ckh_model *model) {
  for (int32_t g = 0; model->group && g < model->head.facts->groups; g++) {
    ckh_group *group = model->group + g;
    for (int i = 0; group->idle && i < CKH_IDLE; i++)
      ckh_free_workspace(group->idle[i], (size_t)group->block_count * (size_t)model->head.facts->forests);
    free(group->block);
    free(group->plan);
    free(group->idle);
  }
  free(model->group);
  free(model->program);
  free(model->forest);
  free(model->ranked);
  model->group = NULL;
}

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
    release(opened);
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
  release(model);
  free(model->owned);
  free(model);
}

int32_t ckh_kernel_count(const ckh_model *model) { return model ? model->head.name_count - NAMES : 0; }

const char *ckh_kernel_name(const ckh_model *model, int32_t kernel) {
  if (!model || kernel < 0 || kernel >= ckh_kernel_count(model)) return NULL;
  return model->head.text + model->head.name[NAMES + kernel];
}

const char *ckh_model_name(const ckh_model *model) { return model ? model->head.text + model->head.name[0] : NULL; }

const char *ckh_model_purpose(const ckh_model *model) { return model ? model->head.text + model->head.name[1] : NULL; }

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
    case CKH_ERROR_VERSION: return "the model is of another version of ckh";
    case CKH_ERROR_NO_MODEL: return "no model of this name is embedded";
    default: return "unknown error";
  }
}
