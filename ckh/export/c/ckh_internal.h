/* What the sources share; no part of the interface. C11 and C++17 alike. */
#ifndef CKH_INTERNAL_H
#define CKH_INTERNAL_H

#include "ckh.h"
#include "ckh_rank.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CKH_CONV = 0, CKH_GEMM = 1 };        /* kinds of problems */
enum { CKH_KEYS = 4 };                      /* direction, dtype, layout, dimensions; 0 where the kind has none */
enum { CKH_MOST_SIZES = 32 };               /* of a problem */
enum { CKH_APPLIES = -1, CKH_REFUSED = -2 }; /* where decisions end; below, with further reasons */

/* What is computed for the problems of a group: generated from the declarations that Python evaluates. */
typedef struct ckh_program {
  int32_t sizes, constants, rows, leaves, partitions, conditions;
  const int32_t *leaf_classes; /* of each leaf: for how many classes of variants it has values, or 1 */
  const uint8_t *leaf_by_tile; /* of each leaf: whether it has a value for each tile */
  const int32_t *classes;      /* of each partition of the variants: number of its classes */
  int (*check)(const struct ckh_program *, const int64_t *size); /* CKH_OK if the problem can be */
  int (*decide)(const struct ckh_program *, const int64_t *size, uint8_t *condition); /* what rules ask for */
  int (*flops)(const struct ckh_program *, const int64_t *size, double *flops);
  /* Features: what differs by problem only, and rows over the tiles from `first` on, of `all` tiles. */
  int (*features)(const struct ckh_program *, const double *size, const double *const *leaf, size_t first, size_t tiles,
                  size_t all, double *constants, double *rows);
  const void *code; /* of a program that is data */
} ckh_program;

extern const ckh_program ckh_programs[];
extern const int32_t ckh_program_count;
extern const uint64_t ckh_program_key; /* tells these programs from others */

typedef struct {
  const char *name;
  const uint64_t *data;
  size_t bytes;
} ckh_embedded_model;

extern const ckh_embedded_model ckh_embedded[];
extern const size_t ckh_embedded_count;

/* Sizes in the order of the programs; generated. */
void ckh_conv_sizes(const ckh_conv_problem *problem, int64_t *size);
void ckh_gemm_sizes(const ckh_gemm_problem *problem, int64_t *size);

/* Tiles that are ranked together. */
typedef struct {
  int32_t first, tiles, candidates;
  const int32_t *candidate; /* numbers within the group */
} ckh_block;

enum { CKH_IDLE = 16 };

/* Problems of one kind, which have one pool. */
typedef struct {
  int32_t key[CKH_KEYS];
  int32_t candidates, tiles, variants, decisions, blocks, reasons;
  const ckh_program *program;
  const int32_t *name;     /* of each candidate */
  const int32_t *decision; /* of each candidate: where deciding whether it applies begins */
  const int32_t *tree;     /* condition, and where to go if it holds and if not */
  const double **leaf;
  ckh_block *block;
  ckh_rank_plan *plan; /* of each forest and block */
  void **idle;         /* CKH_IDLE workspaces that no thread uses, or NULL */
} ckh_group;

struct ckh_model {
  void *owned; /* what was read from a file */
  int32_t kind, forests, groups, names;
  int32_t direction, dtype;    /* that it is for, or -1 */
  int32_t tflops;              /* the forest that tells TFLOPS, or -1; the first one orders */
  int32_t is_log[2];           /* whether a forest tells log(1 + x) */
  const char *text;
  const int32_t *name; /* where names begin: of the model, its purpose, and of kernels */
  ckh_rank_forest forest[2];
  ckh_group *group;
  const ckh_program *programs;
  int32_t program_count;
  ckh_program *own_programs; /* that were read from the model */
};

/* What is left of a model that is read, and what was wrong. */
typedef struct {
  const unsigned char *at;
  size_t left;
  int error;
} ckh_reader;

/* The next array, and how many times `per` elements it has; or one of a number of elements that is known. */
const void *ckh_take(ckh_reader *r, size_t element, size_t per, int32_t *count);
const void *ckh_take_exactly(ckh_reader *r, size_t element, size_t wanted);
const int32_t *ckh_take_integers(ckh_reader *r, size_t wanted);

/* Finds a model's programs, in the sources or in the model. */
void ckh_read_programs(ckh_reader *r, ckh_model *model, uint64_t key);
void ckh_free_programs(ckh_model *model);

/* Ranks a problem by the key of its group and its sizes, in the order of the programs. */
int ckh_rank_sizes(const ckh_model *model, const int32_t *key, const int64_t *size, uint32_t flags,
                   ckh_choice *choices, size_t capacity, size_t *count);

/* Why each candidate of a problem's group does not apply: the number of a reason, from 0, or -1 if it does. `*count` is
   how many candidates there are, of which `capacity` are written at most. */
int ckh_reasons(const ckh_model *model, const int32_t *key, const int64_t *size, int32_t *reason, size_t capacity,
                size_t *count);

/* Checks a model and fills it; `ckh_release` frees what was filled, also after an error. */
int ckh_fill(ckh_model *model, const void *data, size_t bytes);
void ckh_release(ckh_model *model);

void ckh_free_workspace(void *workspace, size_t states);

#ifdef __cplusplus
}
#endif

#endif
