/* What the sources share; no part of the interface. C11 and C++17 alike. */
#ifndef CKH_INTERNAL_H
#define CKH_INTERNAL_H

#include "ckh.h"
#include "ckh_layout.h"
#include "ckh_rank.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CKH_KEYS = 4 };                       /* direction, dtype, layout, one more; 0 where the kind has none */
enum { CKH_MOST_SIZES = 32 };                /* of a problem */
enum { CKH_MOST_FORESTS = 8 };               /* of a model */
#define CKH_FORM(name) CKH_FORM_##name,
enum { CKH_FORMS(CKH_FORM) CKH_FORM_COUNT }; /* of a forest's scores */
enum { CKH_APPLIES = -1, CKH_REFUSED = -2 }; /* where decisions end; below, with further reasons */

/* ---- what lies in a file ---- */

#define CKH_FIELD(name) int32_t name;
typedef struct { CKH_FACTS(CKH_FIELD) } ckh_facts;
typedef struct { CKH_COUNTS(CKH_FIELD) } ckh_counts;
typedef struct { CKH_SHAPE(CKH_FIELD) } ckh_shape;
typedef struct { CKH_NODE(CKH_FIELD) } ckh_node;
typedef struct { CKH_OUTPUT(CKH_FIELD) } ckh_output;
typedef struct { CKH_CALCULATION(CKH_FIELD) } ckh_calculation;
typedef struct { CKH_COMPARISON(CKH_FIELD) } ckh_comparison;
typedef struct { CKH_STEP(CKH_FIELD) } ckh_step;
typedef struct { CKH_EXPONENTS(CKH_FIELD) } ckh_exponents;
typedef struct { CKH_BRANCH(CKH_FIELD) } ckh_branch;
typedef struct { CKH_FAMILY(CKH_FIELD) } ckh_family;
typedef struct { CKH_SET(CKH_FIELD) } ckh_set;
typedef struct { CKH_GROUP(CKH_FIELD) } ckh_group_record;
typedef struct { CKH_MASK_COUNTS(CKH_FIELD) } ckh_mask_counts;
typedef struct { CKH_SOURCE(CKH_FIELD) } ckh_source;
typedef struct { CKH_RANGE(CKH_FIELD) } ckh_range;
typedef struct { int64_t high, low; } ckh_leaf;

#define CKH_ARRAY(name, type) \
  const type *name;           \
  int32_t name##_count;
typedef struct { CKH_HEAD_ARRAYS(CKH_ARRAY) } ckh_head;
typedef struct { CKH_PROGRAM_ARRAYS(CKH_ARRAY) } ckh_program;
typedef struct { CKH_FOREST_ARRAYS(CKH_ARRAY) } ckh_forest;
typedef struct { CKH_GROUP_ARRAYS(CKH_ARRAY) } ckh_group_arrays;
typedef struct { CKH_POOL_ARRAYS(CKH_ARRAY) } ckh_pool;
typedef struct { CKH_PLAN_ARRAYS(CKH_ARRAY) } ckh_plan;
typedef struct { CKH_BLOCK_ARRAYS(CKH_ARRAY) } ckh_block; /* tiles that are ranked together */
typedef struct { CKH_MASKS_ARRAYS(CKH_ARRAY) } ckh_masks;

/* ---- what is made of it ---- */

enum { CKH_IDLE = 16 };

/* Problems of one kind, which have one pool. */
typedef struct {
  ckh_group_arrays own;
  ckh_pool pool;
  const ckh_program *program;
  ckh_block *block;
  int32_t block_count;
  ckh_rank_plan *plan; /* of each forest and block */
  void **idle;         /* CKH_IDLE workspaces that no thread uses, or NULL */
} ckh_group;

struct ckh_model {
  void *owned; /* what was read from a file */
  ckh_head head;
  ckh_program *program;
  ckh_forest *forest;
  ckh_rank_forest *ranked; /* the same as the evaluator has them */
  ckh_group *group;
};

/* Checks a model and fills it; what was filled is freed with the model, also after an error. */
int ckh_fill(ckh_model *model, const void *data, size_t bytes);

/* Whether a program can be run without any further check. */
int ckh_is_program(const ckh_program *program);

/* Whether sizes make a problem, its operations, and the conditions of its rules. */
int ckh_check_sizes(const ckh_program *program, const int64_t *size);
int ckh_flops(const ckh_program *program, const int64_t *size, double *flops);
int ckh_conditions(const ckh_program *program, const int64_t *size, uint8_t *condition);

/* Features over so many tiles at most; NULL without memory. Values that no problem changes are those of a pool and of
   some of its tiles; `ckh_features` then computes what a problem changes: constants, and rows over these tiles. */
typedef struct ckh_registers ckh_registers;
ckh_registers *ckh_open_registers(const ckh_program *program, int32_t tiles);
void ckh_fix_registers(ckh_registers *registers, const double *values, int32_t all, ckh_range range);
void ckh_features(ckh_registers *registers, const double *size, double *constants, double *rows);
void ckh_close_registers(ckh_registers *registers);

void ckh_free_workspace(void *workspace, size_t states);

/* Models that are part of the sources. */
typedef struct {
  const char *name;
  const uint64_t *data;
  size_t bytes;
} ckh_embedded_model;

extern const ckh_embedded_model ckh_embedded[];
extern const size_t ckh_embedded_count;

/* ---- what Python calls besides the interface ---- */

/* What there is in this file and ckh.h, as Python counts it. */
enum { CKH_ABI = 8 };
int32_t ckh_abi(void);

/* Ranks a problem by the key of its group and its sizes, in the order of the programs. */
int ckh_rank_sizes(const ckh_model *model, const int32_t *key, const int64_t *size, uint32_t flags,
                   ckh_choice *choices, size_t capacity, size_t *count);

/* How many candidates there are of each kind, a number of each candidate, by whether they apply: `reasons` + 1 counts for
   each kind, of those that apply first and then by reason. To these is added; `first` is the first candidate of each. */
int ckh_count_reasons(const ckh_model *model, const int32_t *key, const int64_t *size, const uint8_t *kind,
                      int32_t candidates, int32_t reasons, int32_t *first, int32_t *count);

/* Scores of all candidates of a group, whether they apply or not, for problems of `sizes` numbers each: of the first
   forests, forests x problems x candidates. `portable`: with no instructions beyond the baseline. */
int ckh_score(const ckh_model *model, int32_t group, size_t problems, const double *size, int32_t forests,
              double *scores, int32_t portable);

/* The same of `count` candidates for each problem with one forest: problems x count. */
int ckh_score_some(const ckh_model *model, int32_t group, int32_t forest, size_t problems, const double *size,
                   const int32_t *candidate, int32_t count, double *scores);

#ifdef __cplusplus
}
#endif

#endif
