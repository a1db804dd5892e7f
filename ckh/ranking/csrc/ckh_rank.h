/* Ranking: what ckh_rank.c offers. C11 and C++17 alike. */
#ifndef CKH_RANK_H
#define CKH_RANK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CKH_RANK_OK = 0, CKH_RANK_NO_MEMORY = 1, CKH_RANK_TOO_DEEP = 2 };

/* A forest as ckh/ranking/packed.py packs it. A test holds or not; those that differ only in their threshold form a
   family, in which they follow each other. */
typedef struct {
  int32_t trees, families, tests, leaves_count, high_exponent, low_exponent;
  const int32_t *roots;     /* of each tree: a node or, if negative, ~ a leaf */
  const int32_t *nodes;     /* test, child where it holds, other child */
  const int32_t *family;    /* input, flags, first test, number of tests */
  const int32_t *sets;      /* of each categorical test: its first word, number of words */
  const int64_t *leaves;    /* high part, low part */
  const double *thresholds; /* of each numerical test */
  const uint32_t *words;
} ckh_rank_forest;

/* The forest's tests over a pool, as ckh/ranking/model_file.py has them. A candidate is a tile with a variant. Masks are bit
   sets in words of 64 bits, the lowest bit first. There are `all_masks` over tiles, of which the first `static_masks`
   are given, since no problem enters their values. The source of a family's values is a constant of the problem or the
   first one of its rows; it is negative if they are static. */
typedef struct {
  int32_t tiles, variants, candidates;
  int32_t constants, rows; /* what a problem has: values for all tiles, and values by tile */
  int32_t static_masks, all_masks, variant_tests;
  const int32_t *family;         /* kind, source, first mask, partition of the variants */
  const int32_t *class_starts;   /* of each partition, and at the end: the first of its classes */
  const int32_t *tile_of;        /* of each candidate */
  const int32_t *variant_of;     /* of each candidate */
  const uint64_t *masks;         /* the static ones over tiles */
  const uint64_t *variant_masks; /* of each variant test: the variants that it holds for */
  const uint64_t *class_masks;   /* of each class: its variants */
} ckh_rank_plan;

/* What ranking needs to remember of a forest and a plan, which must outlive it; one thread at a time may use it.
   NULL without memory. */
void *ckh_rank_open(const ckh_rank_forest *forest, const ckh_rank_plan *plan);
void ckh_rank_close(void *opened);

/* Scores of all candidates for each problem: scores[problem * stride + candidate].
   constants: problems x plan->constants; rows: problems x plan->rows x plan->tiles; portable: no instructions beyond
   the baseline. 0, or CKH_RANK_NO_MEMORY, or CKH_RANK_TOO_DEEP, after which it can only be closed. */
int32_t ckh_rank_scores(void *opened, int64_t problems, const double *constants, const double *rows, double *scores,
                        int64_t stride, int32_t portable);

/* Scores of CKH_RANK_FEW of the candidates at most for one problem, the same numbers: scores[i] is that of candidate[i]. */
enum { CKH_RANK_FEW = 8 };
int32_t ckh_rank_few(void *opened, const double *constants, const double *rows, const int32_t *candidate, int32_t count,
                     double *scores);

#ifdef __cplusplus
}
#endif

#endif
