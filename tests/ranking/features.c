/* Lets a test see the features of a model's first group: constants, and rows over all tiles, for each problem. */
#include <stdlib.h>

#include "ckh_internal.h"

int features_of(const void *data, size_t bytes, size_t problems, const double *size, double *constants, double *rows);

int features_of(const void *data, size_t bytes, size_t problems, const double *size, double *constants, double *rows) {
  ckh_model *model;
  const int error = ckh_open_memory(data, bytes, &model);
  if (error) return error;
  const ckh_group *group = model->group;
  const ckh_counts *counts = group->program->counts;
  const int32_t all = group->own.group->tiles;
  ckh_registers *registers = ckh_open_registers(group->program, all);
  double *part = malloc(((size_t)counts->rows * (size_t)all + 1) * sizeof *part);
  for (int32_t b = 0; b < group->block_count; b++) {
    const ckh_range range = *group->block[b].range;
    ckh_fix_registers(registers, group->pool.values, all, range);
    for (size_t p = 0; p < problems; p++) {
      double *to = rows + p * (size_t)counts->rows * (size_t)all + range.first;
      ckh_features(registers, size + p * (size_t)counts->sizes, constants + p * (size_t)counts->constants, part);
      for (int32_t i = 0; i < counts->rows; i++)
        for (int32_t t = 0; t < range.tiles; t++) to[i * all + t] = part[i * range.tiles + t];
    }
  }
  free(part);
  ckh_close_registers(registers);
  ckh_close(model);
  return CKH_OK;
}
