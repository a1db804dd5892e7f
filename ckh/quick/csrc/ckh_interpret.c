/* Programs that are data: runs what generated sources would compute, node by node, without a compiler.

   ckh/quick/bytecode.py writes them. Everything is checked when a model is opened, so that running needs no checks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"
#include "ckh_numbers.h"

enum { MAX_PROGRAMS = 1 << 12, MAX_CELLS = 1 << 28 };
enum { SIZE = 0, LEAF = 1, REAL = 2, INTEGER = 3, OPERATIONS = 4 }; /* operations come after what has no operands */
enum { NODE = 6, OUTPUT = 3, CALCULATION = 3, STEP = 3 };
enum { OF_SIZE = 0, OF_NUMBER = 1, PLUS = 2, LESS = 3, TIMES = 4, OVER = 5, MODULO = 6 };
enum { EQUAL = 0, SMALLER = 1, GREATER = 2 };

typedef union {
  double real;
  int64_t integer; /* truths are integers */
} cell;

typedef struct {
  int32_t nodes, outputs, calculations, comparisons, steps, begin, flops;
  const int32_t *node;        /* operation, three operands, whether it differs by tile, partition or -1 */
  const double *literal;
  const int64_t *number;
  const int32_t *output;      /* node, whether it is a row, which constant or first row */
  const int32_t *calculation; /* operation and operands: calculations, or the number of a size or number */
  const int32_t *comparison;  /* comparison and two calculations; those of rules come first */
  const int32_t *step;        /* of the check: comparison, where to go if it holds and if not */
} code;

/* ---- running ---- */

#define OPERATION(number, operands, result, expression)            \
  case OPERATIONS + number:                                        \
    for (size_t i = 0; i < count; i++) out[i].result = expression; \
    break;
#define A(kind) a[i * a_step].kind
#define B(kind) b[i * b_step].kind
#define C(kind) c[i * c_step].kind

static void compute(int32_t operation, cell *out, size_t count, const cell *a, size_t a_step, const cell *b,
                    size_t b_step, const cell *c, size_t c_step) {
  (void)c;
  (void)c_step;
  switch (operation) {
#include "ckh_operations.h"
  }
}

#undef A
#undef B
#undef C
#undef OPERATION

static size_t width_of(const int32_t *node, size_t tiles) { return node[4] ? tiles : 1; }

static size_t classes_of(const ckh_program *program, const int32_t *node) {
  return node[5] < 0 ? 1 : (size_t)program->classes[node[5]];
}

/* Writes the values of a node that has no operands. */
static void fetch(const code *run, const int32_t *node, cell *out, size_t classes, size_t width, const double *size,
                  const double *const *leaf, size_t first, size_t all) {
  switch (node[0]) {
    case SIZE: out->real = size[node[1]]; break;
    case REAL: out->real = run->literal[node[1]]; break;
    case INTEGER: out->integer = run->number[node[1]]; break;
    default:
      for (size_t k = 0; k < classes; k++)
        for (size_t i = 0; i < width; i++)
          out[k * width + i].real = leaf[node[1]][node[4] ? k * all + first + i : k];
  }
}

static int features(const ckh_program *program, const double *size, const double *const *leaf, size_t first,
                    size_t tiles, size_t all, double *constants, double *rows) {
  const code *run = (const code *)program->code;
  cell **of = (cell **)malloc((size_t)(run->nodes + 1) * sizeof *of);
  size_t cells = 0;
  cell *values;
  if (!of) return CKH_ERROR_NO_MEMORY;
  for (int32_t n = 0; n < run->nodes; n++)
    cells += classes_of(program, run->node + NODE * n) * width_of(run->node + NODE * n, tiles);
  values = cells > MAX_CELLS ? NULL : (cell *)malloc((cells + 1) * sizeof *values);
  if (!values) {
    free(of);
    return CKH_ERROR_NO_MEMORY;
  }
  cells = 0;
  for (int32_t n = 0; n < run->nodes; n++) {
    const int32_t *node = run->node + NODE * n, *part[3];
    const size_t classes = classes_of(program, node), width = width_of(node, tiles);
    of[n] = values + cells;
    cells += classes * width;
    if (node[0] < OPERATIONS) {
      fetch(run, node, of[n], classes, width, size, leaf, first, all);
      continue;
    }
    for (int k = 0; k < 3; k++) part[k] = run->node + NODE * node[1 + k];
    for (size_t k = 0; k < classes; k++) {
      const cell *from[3];
      for (int j = 0; j < 3; j++) from[j] = of[node[1 + j]] + (part[j][5] < 0 ? 0 : k * width_of(part[j], tiles));
      compute(node[0], of[n] + k * width, width, from[0], (size_t)part[0][4], from[1], (size_t)part[1][4], from[2],
              (size_t)part[2][4]);
    }
  }
  for (int32_t o = 0; o < run->outputs; o++) {
    const int32_t *output = run->output + OUTPUT * o, *node = run->node + NODE * output[0];
    const size_t classes = classes_of(program, node), step = node[4] ? 1 : 0;
    if (!output[1]) {
      constants[output[2]] = of[output[0]]->real;
      continue;
    }
    for (size_t k = 0; k < classes; k++)
      for (size_t i = 0; i < tiles; i++)
        rows[((size_t)output[2] + k) * tiles + i] = of[output[0]][(k * (step ? tiles : 1)) + i * step].real;
  }
  free(values);
  free(of);
  return CKH_OK;
}

typedef struct {
  int64_t value;
  int overflow;
} integer;

static integer calculate(const code *run, const int64_t *size, const integer *known, int32_t index) {
  const int32_t *calculation = run->calculation + CALCULATION * index;
  integer made = {0, 0};
  int64_t a, b;
  if (calculation[0] == OF_SIZE || calculation[0] == OF_NUMBER) {
    made.value = calculation[0] == OF_SIZE ? size[calculation[1]] : run->number[calculation[1]];
    return made;
  }
  made.overflow = known[calculation[1]].overflow | known[calculation[2]].overflow;
  if (made.overflow) return made;
  a = known[calculation[1]].value;
  b = known[calculation[2]].value;
  switch (calculation[0]) {
    case PLUS: made.value = ckh_plus(a, b, &made.overflow); break;
    case LESS: made.value = ckh_less(a, b, &made.overflow); break;
    case TIMES: made.value = ckh_times(a, b, &made.overflow); break;
    case OVER: made.value = ckh_over(a, b, &made.overflow); break;
    default: made.value = ckh_modulo(a, b, &made.overflow);
  }
  return made;
}

static integer *calculate_all(const code *run, const int64_t *size) {
  integer *known = (integer *)malloc(((size_t)run->calculations + 1) * sizeof *known);
  for (int32_t i = 0; known && i < run->calculations; i++) known[i] = calculate(run, size, known, i);
  return known;
}

/* Whether a comparison holds; -1 if a side of it is too large. */
static int holds(const code *run, const integer *known, int32_t index) {
  const int32_t *comparison = run->comparison + CALCULATION * index;
  const integer a = known[comparison[1]], b = known[comparison[2]];
  if (a.overflow | b.overflow) return -1;
  if (comparison[0] == EQUAL) return a.value == b.value;
  return comparison[0] == SMALLER ? a.value < b.value : a.value > b.value;
}

static int check(const ckh_program *program, const int64_t *size) {
  const code *run = (const code *)program->code;
  integer *known = calculate_all(run, size);
  int32_t at = run->begin;
  if (!known) return CKH_ERROR_NO_MEMORY;
  while (at >= 0) {
    const int32_t *step = run->step + STEP * at;
    const int answer = holds(run, known, step[0]);
    at = answer < 0 ? CKH_REFUSED : step[answer ? 1 : 2];
  }
  free(known);
  return at == CKH_APPLIES ? CKH_OK : CKH_ERROR_SIZE;
}

static int decide(const ckh_program *program, const int64_t *size, uint8_t *condition) {
  const code *run = (const code *)program->code;
  integer *known = calculate_all(run, size);
  int error = CKH_OK;
  if (!known) return CKH_ERROR_NO_MEMORY;
  for (int32_t i = 0; i < program->conditions; i++) {
    const int answer = holds(run, known, i);
    if (answer < 0) error = CKH_ERROR_SIZE;
    condition[i] = answer > 0;
  }
  free(known);
  return error;
}

static int flops(const ckh_program *program, const int64_t *size, double *found) {
  const code *run = (const code *)program->code;
  integer *known = calculate_all(run, size);
  int error;
  if (!known) return CKH_ERROR_NO_MEMORY;
  error = known[run->flops].overflow ? CKH_ERROR_SIZE : CKH_OK;
  *found = (double)known[run->flops].value;
  free(known);
  return error;
}

/* ---- reading ---- */

static const uint8_t operands_of[] = {
#define OPERATION(number, operands, result, expression) operands,
#include "ckh_operations.h"
#undef OPERATION
};

static int is_leaf(const ckh_program *program, const int32_t *node) {
  if (node[1] < 0 || node[1] >= program->leaves || node[4] != program->leaf_by_tile[node[1]]) return 0;
  return program->leaf_classes[node[1]] == (node[5] < 0 ? 1 : program->classes[node[5]]);
}

/* Whether a node has what it needs, from nodes that come before it. */
static int is_node(const ckh_program *program, const code *run, int32_t index, int32_t literals, int32_t numbers) {
  const int32_t *node = run->node + NODE * index;
  const int32_t known = (int32_t)(sizeof operands_of / sizeof *operands_of);
  if (node[0] < 0 || node[0] >= OPERATIONS + known || (node[4] != 0 && node[4] != 1) || node[5] < -1 ||
      node[5] >= program->partitions)
    return 0;
  if (node[0] == LEAF) return is_leaf(program, node);
  if (node[0] < OPERATIONS) {
    const int32_t count = node[0] == SIZE ? program->sizes : node[0] == REAL ? literals : numbers;
    return node[1] >= 0 && node[1] < count && !node[4] && node[5] < 0;
  }
  for (int k = 0; k < 3; k++) { /* operands that are not used repeat the first one */
    const int32_t *part;
    if (node[1 + k] < 0 || node[1 + k] >= index || (k >= operands_of[node[0] - OPERATIONS] && node[1 + k] != node[1]))
      return 0;
    part = run->node + NODE * node[1 + k];
    if (part[4] > node[4] || (part[5] >= 0 && part[5] != node[5])) return 0;
  }
  return 1;
}

/* Whether each constant and row is written once. */
static int are_outputs(const ckh_program *program, const code *run, unsigned char *seen) {
  int32_t written = 0;
  for (int32_t o = 0; o < run->outputs; o++) {
    const int32_t *output = run->output + OUTPUT * o, *node;
    int32_t rows = 1;
    if (output[0] < 0 || output[0] >= run->nodes || (output[1] != 0 && output[1] != 1) || output[2] < 0) return 0;
    node = run->node + NODE * output[0];
    if (output[1] && node[5] >= 0) rows = program->classes[node[5]];
    if (!output[1] && (node[4] || node[5] >= 0)) return 0;
    if (output[2] > (output[1] ? program->rows : program->constants) - rows) return 0;
    for (int32_t i = 0; i < rows; i++)
      if (seen[(output[1] ? program->constants : 0) + output[2] + i]++) return 0;
    written += rows;
  }
  return written == program->constants + program->rows;
}

static int are_calculations(const ckh_program *program, const code *run, int32_t numbers) {
  for (int32_t i = 0; i < run->calculations; i++) {
    const int32_t *one = run->calculation + CALCULATION * i;
    const int32_t most = one[0] == OF_SIZE ? program->sizes : one[0] == OF_NUMBER ? numbers : i;
    if (one[0] < OF_SIZE || one[0] > MODULO || one[1] < 0 || one[1] >= most || one[2] < 0) return 0;
    if (one[2] >= most && one[0] > OF_NUMBER) return 0;
  }
  for (int32_t i = 0; i < run->comparisons; i++) {
    const int32_t *one = run->comparison + CALCULATION * i;
    if (one[0] < EQUAL || one[0] > GREATER) return 0;
    for (int k = 1; k < 3; k++)
      if (one[k] < 0 || one[k] >= run->calculations) return 0;
  }
  for (int32_t i = 0; i < run->steps; i++) {
    const int32_t *one = run->step + STEP * i;
    if (one[0] < 0 || one[0] >= run->comparisons) return 0;
    for (int k = 1; k < 3; k++)
      if (one[k] < CKH_REFUSED || one[k] >= i) return 0; /* so that checking comes to an end */
  }
  return run->begin >= CKH_REFUSED && run->begin < run->steps && run->flops >= 0 && run->flops < run->calculations &&
         program->conditions <= run->comparisons;
}

static int is_program(const ckh_program *program, const code *run, int32_t literals, int32_t numbers) {
  unsigned char *seen;
  int is_right = 1;
  for (int32_t i = 0; i < program->partitions; i++)
    if (program->classes[i] < 1 || program->classes[i] > 512) return 0;
  for (int32_t i = 0; i < program->leaves; i++)
    if (program->leaf_classes[i] < 1 || program->leaf_classes[i] > 512 || program->leaf_by_tile[i] > 1) return 0;
  for (int32_t n = 0; n < run->nodes; n++)
    if (!is_node(program, run, n, literals, numbers)) return 0;
  seen = (unsigned char *)calloc((size_t)program->constants + (size_t)program->rows + 1, 1);
  if (!seen) return 0;
  is_right = are_outputs(program, run, seen) && are_calculations(program, run, numbers);
  free(seen);
  return is_right;
}

static void read_program(ckh_reader *r, ckh_program *program) {
  const int32_t *counts = ckh_take_integers(r, 8);
  int32_t literals, numbers;
  code *run = (code *)calloc(1, sizeof *run);
  program->code = run;
  if (!run) r->error = CKH_ERROR_NO_MEMORY;
  if (r->error) return;
  for (int k = 0; k < 6; k++)
    if (counts[k] < 0 || counts[k] > 1 << 20) r->error = CKH_ERROR_DAMAGED;
  if (r->error || counts[0] > CKH_MOST_SIZES) {
    r->error = CKH_ERROR_DAMAGED;
    return;
  }
  program->sizes = counts[0];
  program->constants = counts[1];
  program->rows = counts[2];
  program->leaves = counts[3];
  program->partitions = counts[4];
  program->conditions = counts[5];
  run->begin = counts[6];
  run->flops = counts[7];
  program->leaf_classes = ckh_take_integers(r, (size_t)program->leaves);
  program->leaf_by_tile = (const uint8_t *)ckh_take_exactly(r, 1, (size_t)program->leaves);
  program->classes = ckh_take_integers(r, (size_t)program->partitions);
  run->node = (const int32_t *)ckh_take(r, 4, NODE, &run->nodes);
  run->literal = (const double *)ckh_take(r, 8, 1, &literals);
  run->number = (const int64_t *)ckh_take(r, 8, 1, &numbers);
  run->output = (const int32_t *)ckh_take(r, 4, OUTPUT, &run->outputs);
  run->calculation = (const int32_t *)ckh_take(r, 4, CALCULATION, &run->calculations);
  run->comparison = (const int32_t *)ckh_take(r, 4, CALCULATION, &run->comparisons);
  run->step = (const int32_t *)ckh_take(r, 4, STEP, &run->steps);
  program->check = check;
  program->decide = decide;
  program->flops = flops;
  program->features = features;
  if (!r->error && !is_program(program, run, literals, numbers)) r->error = CKH_ERROR_DAMAGED;
}

void ckh_read_programs(ckh_reader *r, ckh_model *model, uint64_t key) {
  const int32_t *count = ckh_take_integers(r, 1);
  if (!r->error && (key || count[0] < 0 || count[0] > MAX_PROGRAMS)) r->error = CKH_ERROR_DAMAGED;
  if (r->error) return;
  model->own_programs = (ckh_program *)calloc((size_t)count[0] + 1, sizeof *model->own_programs);
  if (!model->own_programs) r->error = CKH_ERROR_NO_MEMORY;
  model->programs = model->own_programs;
  for (int32_t i = 0; !r->error && i < count[0]; i++, model->program_count++) read_program(r, model->own_programs + i);
}

void ckh_free_programs(ckh_model *model) {
  for (int32_t i = 0; model->own_programs && i <= model->program_count; i++) free((void *)model->own_programs[i].code);
  free(model->own_programs);
  model->own_programs = NULL;
}
