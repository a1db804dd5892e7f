/* Runs programs: features node by node, checks and rules by calculations with integers.

   A program is data, which ckh/ranking/program.py writes. `ckh_is_program` checks everything when a model is opened, so
   that running needs no checks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckh_internal.h"
#include "ckh_numbers.h"

enum { MAX_CLASSES = 512, MAX_CELLS = 1 << 28, MAX_COUNT = 1 << 20 };

#define NAMED(name) name,
enum { CKH_ARITHMETIC(NAMED) ARITHMETIC };
enum { CKH_RELATIONS(NAMED) RELATIONS };

#define OPERATION1(name, a, result, expression) DO_##name##_##a,
#define OPERATION2(name, a, b, result, expression) DO_##name##_##a##b,
#define OPERATION3(name, a, b, c, result, expression) DO_##name##_##a##b##c,
enum {
  CKH_LEAVES(NAMED)
#include "ckh_operations.h"
  OPERATIONS
};
#undef OPERATION1
#undef OPERATION2
#undef OPERATION3

typedef union {
  double real;
  int64_t integer; /* truths are integers */
} cell;

struct ckh_registers {
  const ckh_program *program;
  cell *values;
  cell **at;       /* of each node: where its values begin, class by class */
  size_t *leaf_at; /* where those of each leaf begin in a pool's */
  int32_t *varying; /* the nodes that a problem changes */
  uint8_t *varies;  /* whether it changes a node */
  int32_t varying_count;
  size_t tiles; /* of the range that is computed */
};

/* ---- features ---- */

#define C_R double
#define C_I int64_t
#define C_T int64_t
#define IN_R real
#define IN_I integer
#define IN_T integer
#define STORE(result, expression) out[i].IN_##result = (expression)
#define LOAD(name, kind, from) const C_##kind name = (from).IN_##kind
#define OPERATION1(name, ka, result, expression) \
  case DO_##name##_##ka:                         \
    for (size_t i = 0; i < count; i++) {         \
      LOAD(a, ka, x[i]);                         \
      STORE(result, expression);                 \
    }                                            \
    break;
/* An operand that has one value for all tiles is read once, so that the loop is a plain one. */
#define OPERATION2(name, ka, kb, result, expression) \
  case DO_##name##_##ka##kb:                         \
    if (x_step == y_step) {                          \
      for (size_t i = 0; i < count; i++) {           \
        LOAD(a, ka, x[i]);                           \
        LOAD(b, kb, y[i]);                           \
        STORE(result, expression);                   \
      }                                              \
    } else if (x_step) {                             \
      LOAD(b, kb, *y);                               \
      for (size_t i = 0; i < count; i++) {           \
        LOAD(a, ka, x[i]);                           \
        STORE(result, expression);                   \
      }                                              \
    } else {                                         \
      LOAD(a, ka, *x);                               \
      for (size_t i = 0; i < count; i++) {           \
        LOAD(b, kb, y[i]);                           \
        STORE(result, expression);                   \
      }                                              \
    }                                                \
    break;
#define OPERATION3(name, ka, kb, kc, result, expression) \
  case DO_##name##_##ka##kb##kc:                         \
    for (size_t i = 0; i < count; i++) {                 \
      LOAD(a, ka, x[i * x_step]);                        \
      LOAD(b, kb, y[i * y_step]);                        \
      LOAD(c, kc, z[i * z_step]);                        \
      STORE(result, expression);                         \
    }                                                    \
    break;

static void compute(int32_t operation, cell *out, size_t count, const cell *x, size_t x_step, const cell *y,
                    size_t y_step, const cell *z, size_t z_step) {
  switch (operation) {
#include "ckh_operations.h"
  }
}

#undef OPERATION1
#undef OPERATION2
#undef OPERATION3

static size_t width_of(const ckh_node *node, size_t tiles) { return node->by_tile ? tiles : 1; }

static size_t classes_of(const ckh_program *program, const ckh_node *node) {
  return node->partition < 0 ? 1 : (size_t)program->classes[node->partition];
}

static void run(const ckh_registers *r, int32_t index) {
  const ckh_program *program = r->program;
  const ckh_node *node = program->node + index, *part[3];
  const size_t width = width_of(node, r->tiles), classes = classes_of(program, node);
  const int32_t operand[3] = {node->a, node->b, node->c};
  for (int j = 0; j < 3; j++) part[j] = program->node + operand[j];
  for (size_t k = 0; k < classes; k++) {
    const cell *from[3];
    for (int j = 0; j < 3; j++)
      from[j] = r->at[operand[j]] + (part[j]->partition < 0 ? 0 : k * width_of(part[j], r->tiles));
    compute(node->operation, r->at[index] + k * width, width, from[0], (size_t)part[0]->by_tile, from[1],
            (size_t)part[1]->by_tile, from[2], (size_t)part[2]->by_tile);
  }
}

static int is_varying(const ckh_registers *r, const ckh_node *node) {
  if (node->operation <= INTEGER) return node->operation == SIZE;
  return r->varies[node->a] | r->varies[node->b] | r->varies[node->c];
}

static size_t lay_out(ckh_registers *r, size_t tiles) {
  size_t cells = 0;
  for (int32_t n = 0; n < r->program->node_count; n++) {
    const ckh_node *node = r->program->node + n;
    if (r->values) r->at[n] = r->values + cells;
    cells += classes_of(r->program, node) * width_of(node, tiles);
    r->varies[n] = (uint8_t)is_varying(r, node);
    if (r->values && r->varies[n]) r->varying[r->varying_count++] = n;
  }
  return cells;
}

ckh_registers *ckh_open_registers(const ckh_program *program, int32_t tiles) {
  const size_t nodes = (size_t)program->node_count + 1;
  ckh_registers *r = (ckh_registers *)calloc(1, sizeof *r);
  if (!r) return NULL;
  r->program = program;
  r->at = (cell **)malloc(nodes * sizeof *r->at);
  r->leaf_at = (size_t *)malloc(((size_t)program->shape_count + 1) * sizeof *r->leaf_at);
  r->varying = (int32_t *)malloc(nodes * sizeof *r->varying);
  r->varies = (uint8_t *)malloc(nodes);
  if (r->at && r->leaf_at && r->varying && r->varies) {
    const size_t cells = lay_out(r, (size_t)tiles);
    r->values = cells > MAX_CELLS ? NULL : (cell *)malloc((cells + 1) * sizeof *r->values);
    if (r->values) {
      lay_out(r, (size_t)tiles);
      return r;
    }
  }
  ckh_close_registers(r);
  return NULL;
}

void ckh_close_registers(ckh_registers *r) {
  if (!r) return;
  free(r->values);
  free(r->at);
  free(r->leaf_at);
  free(r->varying);
  free(r->varies);
  free(r);
}

void ckh_fix_registers(ckh_registers *r, const double *values, int32_t all, ckh_range range) {
  const ckh_program *program = r->program;
  size_t end = 0;
  r->tiles = (size_t)range.tiles;
  for (int32_t i = 0; i < program->shape_count; i++) {
    r->leaf_at[i] = end;
    end += (size_t)program->shape[i].classes * (program->shape[i].by_tile ? (size_t)all : 1);
  }
  for (int32_t n = 0; n < program->node_count; n++) {
    const ckh_node *node = program->node + n;
    const size_t width = width_of(node, r->tiles), skipped = node->by_tile ? (size_t)all : 1;
    const double *from;
    if (r->varies[n]) continue;
    switch (node->operation) {
      case REAL: r->at[n]->real = program->literal[node->a]; break;
      case INTEGER: r->at[n]->integer = program->number[node->a]; break;
      case LEAF:
        from = values + r->leaf_at[node->a] + (node->by_tile ? range.first : 0);
        for (size_t k = 0; k < classes_of(program, node); k++)
          memcpy(r->at[n] + k * width, from + k * skipped, width * sizeof *from);
        break;
      default: run(r, n);
    }
  }
}

void ckh_features(ckh_registers *r, const double *size, double *constants, double *rows) {
  const ckh_program *program = r->program;
  for (int32_t i = 0; i < r->varying_count; i++) {
    const int32_t n = r->varying[i];
    if (program->node[n].operation == SIZE)
      r->at[n]->real = size[program->node[n].a];
    else
      run(r, n);
  }
  for (int32_t o = 0; o < program->output_count; o++) {
    const ckh_output *output = program->output + o;
    const ckh_node *node = program->node + output->node;
    const cell *from = r->at[output->node];
    double *to = rows + (size_t)output->place * r->tiles;
    if (!output->is_row) {
      constants[output->place] = from->real;
      continue;
    }
    for (int32_t k = 0; k < output->count; k++, to += r->tiles) {
      const cell *row = from + (node->partition < 0 ? 0 : (size_t)k * width_of(node, r->tiles));
      if (node->by_tile) memcpy(to, row, r->tiles * sizeof *to);
      for (size_t i = 0; i < r->tiles && !node->by_tile; i++) to[i] = row->real;
    }
  }
}

/* ---- integers ---- */

typedef struct {
  int64_t value;
  int overflow;
} integer;

static integer calculate(const ckh_program *program, const int64_t *size, const integer *known, int32_t index) {
  const ckh_calculation *one = program->calculation + index;
  integer made = {0, 0};
  int64_t a, b;
  if (one->operation == OF_SIZE || one->operation == OF_NUMBER) {
    made.value = one->operation == OF_SIZE ? size[one->a] : program->number[one->a];
    return made;
  }
  made.overflow = known[one->a].overflow | known[one->b].overflow;
  if (made.overflow) return made;
  a = known[one->a].value;
  b = known[one->b].value;
  switch (one->operation) {
    case PLUS: made.value = ckh_plus(a, b, &made.overflow); break;
    case LESS: made.value = ckh_less(a, b, &made.overflow); break;
    case TIMES: made.value = ckh_times(a, b, &made.overflow); break;
    case OVER: made.value = ckh_over(a, b, &made.overflow); break;
    default: made.value = ckh_modulo(a, b, &made.overflow);
  }
  return made;
}

static integer *calculate_all(const ckh_program *program, const int64_t *size) {
  integer *known = (integer *)malloc(((size_t)program->calculation_count + 1) * sizeof *known);
  for (int32_t i = 0; known && i < program->calculation_count; i++) known[i] = calculate(program, size, known, i);
  return known;
}

/* Whether a comparison holds; -1 if a side of it is too large. */
static int holds(const ckh_program *program, const integer *known, int32_t index) {
  const ckh_comparison *comparison = program->comparison + index;
  const integer a = known[comparison->a], b = known[comparison->b];
  if (a.overflow | b.overflow) return -1;
  if (comparison->relation == EQUAL) return a.value == b.value;
  return comparison->relation == SMALLER ? a.value < b.value : a.value > b.value;
}

int ckh_check_sizes(const ckh_program *program, const int64_t *size) {
  integer *known = calculate_all(program, size);
  int32_t at = program->counts->begin;
  if (!known) return CKH_ERROR_NO_MEMORY;
  while (at >= 0) {
    const ckh_step *step = program->step + at;
    const int answer = holds(program, known, step->condition);
    at = answer < 0 ? CKH_REFUSED : answer ? step->yes : step->no;
  }
  free(known);
  return at == CKH_APPLIES ? CKH_OK : CKH_ERROR_SIZE;
}

int ckh_conditions(const ckh_program *program, const int64_t *size, uint8_t *condition) {
  integer *known = calculate_all(program, size);
  int error = CKH_OK;
  if (!known) return CKH_ERROR_NO_MEMORY;
  for (int32_t i = 0; i < program->counts->conditions; i++) {
    const int answer = holds(program, known, i);
    if (answer < 0) error = CKH_ERROR_SIZE;
    condition[i] = answer > 0;
  }
  free(known);
  return error;
}

int ckh_flops(const ckh_program *program, const int64_t *size, double *flops) {
  integer *known = calculate_all(program, size);
  const int32_t last = program->counts->flops;
  int error;
  if (!known) return CKH_ERROR_NO_MEMORY;
  error = last < 0 || known[last].overflow ? CKH_ERROR_SIZE : CKH_OK;
  *flops = error ? 0 : (double)known[last].value;
  free(known);
  return error;
}

/* ---- checking programs ---- */

#define OPERATION1(name, a, result, expression) 1,
#define OPERATION2(name, a, b, result, expression) 2,
#define OPERATION3(name, a, b, c, result, expression) 3,
static const uint8_t operands_of[] = {
    0, 0, 0, 0,
#include "ckh_operations.h"
};

static int is_leaf(const ckh_program *program, const ckh_node *node) {
  if (node->a < 0 || node->a >= program->shape_count || node->by_tile != program->shape[node->a].by_tile) return 0;
  return program->shape[node->a].classes == (node->partition < 0 ? 1 : program->classes[node->partition]);
}

/* Whether a node has what it needs, from nodes that come before it. */
static int is_node(const ckh_program *program, int32_t index) {
  const ckh_node *node = program->node + index;
  const int32_t operand[3] = {node->a, node->b, node->c};
  if (node->operation < 0 || node->operation >= OPERATIONS || (node->by_tile != 0 && node->by_tile != 1) ||
      node->partition < -1 || node->partition >= program->classes_count)
    return 0;
  if (node->operation == LEAF) return is_leaf(program, node);
  if (!operands_of[node->operation]) {
    const int32_t count = node->operation == SIZE   ? program->counts->sizes
                          : node->operation == REAL ? program->literal_count
                                                    : program->number_count;
    return node->a >= 0 && node->a < count && !node->by_tile && node->partition < 0;
  }
  for (int j = 0; j < 3; j++) { /* operands that are not used repeat the first one */
    const ckh_node *part;
    if (operand[j] < 0 || operand[j] >= index || (j >= operands_of[node->operation] && operand[j] != node->a)) return 0;
    part = program->node + operand[j];
    if (part->by_tile > node->by_tile || (part->partition >= 0 && part->partition != node->partition)) return 0;
  }
  return 1;
}

/* Whether the node's first two operands are as wide as the node, or one value. */
static int are_widths(const ckh_program *program, const ckh_node *node) {
  if (operands_of[node->operation] == 1) return program->node[node->a].by_tile == node->by_tile;
  if (operands_of[node->operation] != 2) return 1;
  return (program->node[node->a].by_tile | program->node[node->b].by_tile) == node->by_tile;
}

/* Whether each constant and row is written once. */
static int are_outputs(const ckh_program *program, unsigned char *seen) {
  const ckh_counts *counts = program->counts;
  int32_t written = 0;
  for (int32_t o = 0; o < program->output_count; o++) {
    const ckh_output *output = program->output + o;
    const ckh_node *node;
    const int32_t count = output->count;
    if (output->node < 0 || output->node >= program->node_count || (output->is_row != 0 && output->is_row != 1) ||
        output->place < 0)
      return 0;
    node = program->node + output->node;
    if (count < 1 || count > (node->partition >= 0 ? program->classes[node->partition] : MAX_CLASSES)) return 0;
    if (!output->is_row && (node->by_tile || node->partition >= 0 || count > 1)) return 0;
    if (output->place > (output->is_row ? counts->rows : counts->constants) - count) return 0;
    for (int32_t i = 0; i < count; i++)
      if (seen[(output->is_row ? counts->constants : 0) + output->place + i]++) return 0;
    written += count;
  }
  return written == counts->constants + counts->rows;
}

static int are_calculations(const ckh_program *program) {
  for (int32_t i = 0; i < program->calculation_count; i++) {
    const ckh_calculation *one = program->calculation + i;
    const int32_t most = one->operation == OF_SIZE     ? program->counts->sizes
                         : one->operation == OF_NUMBER ? program->number_count
                                                       : i;
    if (one->operation < 0 || one->operation >= ARITHMETIC || one->a < 0 || one->a >= most || one->b < 0) return 0;
    if (one->b >= most && one->operation > OF_NUMBER) return 0;
  }
  for (int32_t i = 0; i < program->comparison_count; i++) {
    const ckh_comparison *one = program->comparison + i;
    if (one->relation < 0 || one->relation >= RELATIONS || one->a < 0 || one->b < 0 ||
        one->a >= program->calculation_count || one->b >= program->calculation_count)
      return 0;
  }
  for (int32_t i = 0; i < program->step_count; i++) { /* each leads to earlier ones, so that checking comes to an end */
    const ckh_step *one = program->step + i;
    if (one->condition < 0 || one->condition >= program->comparison_count || one->yes < CKH_REFUSED || one->yes >= i ||
        one->no < CKH_REFUSED || one->no >= i)
      return 0;
  }
  return program->counts->begin >= CKH_REFUSED && program->counts->begin < program->step_count &&
         program->counts->flops >= -1 && program->counts->flops < program->calculation_count &&
         program->counts->conditions <= program->comparison_count;
}

static int are_counts(const ckh_program *program) {
  const ckh_counts *counts = program->counts;
  return program->counts_count == 1 && counts->sizes >= 0 && counts->sizes <= CKH_MOST_SIZES && counts->constants >= 0 &&
         counts->constants <= MAX_COUNT && counts->rows >= 0 && counts->rows <= MAX_COUNT && counts->conditions >= 0 &&
         counts->conditions <= MAX_COUNT;
}

int ckh_is_program(const ckh_program *program) {
  unsigned char *seen;
  int is_right;
  if (!are_counts(program)) return 0;
  for (int32_t i = 0; i < program->classes_count; i++)
    if (program->classes[i] < 1 || program->classes[i] > MAX_CLASSES) return 0;
  for (int32_t i = 0; i < program->shape_count; i++)
    if (program->shape[i].classes < 1 || program->shape[i].classes > MAX_CLASSES || program->shape[i].by_tile < 0 ||
        program->shape[i].by_tile > 1)
      return 0;
  for (int32_t n = 0; n < program->node_count; n++)
    if (!is_node(program, n) || !are_widths(program, program->node + n)) return 0;
  seen = (unsigned char *)calloc((size_t)program->counts->constants + (size_t)program->counts->rows + 1, 1);
  if (!seen) return 0;
  is_right = are_outputs(program, seen) && are_calculations(program);
  free(seen);
  return is_right;
}
