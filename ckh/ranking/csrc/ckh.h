/* Ranks the kernels for a problem, best first, as `ckh predict` does; without Python and LightGBM.

   C11 and C++17. A model may be used by any number of threads at once. Functions that return int return CKH_OK or
   one of the errors, which `ckh_error_string` puts in words. */
#ifndef CKH_H
#define CKH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CKH_OK = 0,
  CKH_ERROR_ARGUMENT = 1,  /* a pointer is NULL, memory is not aligned, or a flag is unknown */
  CKH_ERROR_ENUM = 2,      /* no such direction, dtype, layout or number of dimensions */
  CKH_ERROR_SIZE = 3,      /* a size is out of range, or sizes do not go together */
  CKH_ERROR_OTHER = 4,     /* the model is for another operation, direction, dtype or layout */
  CKH_ERROR_NO_KERNEL = 5, /* no kernel applies to the problem */
  CKH_ERROR_NO_MEMORY = 6,
  CKH_ERROR_FILE = 7,     /* the file cannot be read */
  CKH_ERROR_DAMAGED = 8,  /* the data are no model, or damaged */
  CKH_ERROR_VERSION = 9,  /* the model is of another version of ckh */
  CKH_ERROR_NO_MODEL = 10 /* no model of this name is embedded */
};

#ifndef CKH_SIZES_ONLY /* as Python compiles the sources: it names no kinds of problems */

#include "ckh_names.h" /* the kinds of problems with their fields; CKH_FORWARD, CKH_FP32, ... */

/* Problems of a kind, such as `ckh_conv_problem`: codes such as `dtype` first, then sizes, in the order of the names. */
#define CKH_CODE(name, value, least, end, place, added) int32_t name;
#define CKH_SIZE(name, value) int64_t name;
#define CKH_PROBLEM(kind, KIND, number) \
  typedef struct ckh_##kind##_problem { \
    CKH_##KIND##_CODES(CKH_CODE) \
    CKH_##KIND##_SIZES(CKH_SIZE) \
  } ckh_##kind##_problem;
CKH_KINDS(CKH_PROBLEM)

#endif

/* A kernel in its place. */
typedef struct ckh_choice {
  int32_t kernel;    /* its number, for `ckh_kernel_name` */
  double score;      /* what kernels are ordered by, highest first */
  double tflops;     /* expected; NaN if the model predicts none: behind the first where its data hold the fastest alone,
                        far outside of its training data, or with CKH_ORDER_ONLY */
  double latency_ms; /* expected; NaN likewise */
} ckh_choice;

enum { CKH_ORDER_ONLY = 1 }; /* a flag: leave out TFLOPS and time, which takes half as long */

typedef struct ckh_model ckh_model;

/* Opens a model in a file. `*model` is NULL after an error. */
int ckh_open_file(const char *path, ckh_model **model);

/* Opens a model in memory that is aligned to 8 bytes and outlives it. */
int ckh_open_memory(const void *data, size_t bytes, ckh_model **model);

/* Closes a model that no thread uses any more. NULL is allowed. */
void ckh_close(ckh_model *model);

/* Number of kernels that a model knows, and their names; NULL if there is no such kernel. */
int32_t ckh_kernel_count(const ckh_model *model);
const char *ckh_kernel_name(const ckh_model *model, int32_t kernel);

/* What a model is called, and what it is for: "grouped_conv forward fp32 on gfx942". */
const char *ckh_model_name(const ckh_model *model);
const char *ckh_model_purpose(const ckh_model *model);

#ifndef CKH_SIZES_ONLY

/* Opens a model that was exported with --embed; of any name if `name` is NULL. */
int ckh_open_embedded(const char *name, ckh_model **model);

/* For each kind, such as `conv`:

   ckh_conv_defaults   a problem as it is without saying anything: forward, fp32, 2D, steps of 1, no padding; the other
                       sizes are 0, which is an error unless they are set
   ckh_rank_conv       ranks the kernels that apply to a problem: `*count` becomes their number, and the best of them,
                       `capacity` at most, are written to `choices`, best first; of equal ones the one with the lower
                       place in the pool comes first */
#define CKH_FUNCTIONS(kind, KIND, number) \
  void ckh_##kind##_defaults(ckh_##kind##_problem *problem); \
  int ckh_rank_##kind(const ckh_model *model, const ckh_##kind##_problem *problem, uint32_t flags, \
                      ckh_choice *choices, size_t capacity, size_t *count);
CKH_KINDS(CKH_FUNCTIONS)

#endif

const char *ckh_error_string(int error);

#ifdef __cplusplus
}
#endif

#endif
