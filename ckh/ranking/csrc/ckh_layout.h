/* What model files hold, said once for both languages: ckh/ranking/layout.py reads this file as well.

   A record is a row of int32_t, here by its fields. A section is some arrays, by name and the type of an entry. After its
   header a file has the sections HEAD, PROGRAM (for each program), FOREST (for each forest), and for each group of
   problems GROUP and, if it has candidates, POOL, PLAN for each forest, and for each of its blocks of tiles BLOCK, and
   MASKS for each forest. Before an array stand the size of an entry and their number, after it what makes it whole
   words of eight bytes. All is little-endian. */

/* What the file is for: -1 where it does not say; tflops is the forest that predicts them, of the first `timed` kernels
   of a problem, or of all where that is 0. `limit` has the largest of each
   size of which TFLOPS are expected, or nothing: any are. `calibration` has a scale, distances of scores to the best and
   the shares of its TFLOPS there (ckh/learn/models/calibration.py), or nothing: TFLOPS are those of the forest. */
#define CKH_FACTS(X) X(kind) X(direction) X(dtype) X(tflops) X(timed) X(programs) X(forests) X(groups)

/* Of programs: how many numbers a problem has, how many of its features are one number or rows over tiles, how many
   comparisons are those of rules, where checking a problem begins, and the calculation of its operations. An output is a
   constant, or rows: one, or one for each class of a partition. */
#define CKH_COUNTS(X) X(sizes) X(constants) X(rows) X(conditions) X(begin) X(flops)
#define CKH_LEAVES(X) X(SIZE) X(LEAF) X(REAL) X(INTEGER) /* nodes without operands, before ckh_operations.h */
#define CKH_ARITHMETIC(X) X(OF_SIZE) X(OF_NUMBER) X(PLUS) X(LESS) X(TIMES) X(OVER) X(MODULO)
#define CKH_RELATIONS(X) X(EQUAL) X(SMALLER) X(GREATER)
#define CKH_SHAPE(X) X(classes) X(by_tile)
#define CKH_NODE(X) X(operation) X(a) X(b) X(c) X(by_tile) X(partition)
#define CKH_OUTPUT(X) X(node) X(is_row) X(place) X(count)
#define CKH_CALCULATION(X) X(operation) X(a) X(b)
#define CKH_COMPARISON(X) X(relation) X(a) X(b)
#define CKH_STEP(X) X(condition) X(yes) X(no)

/* Of forests, as ckh/ranking/packed.py explains them; `form` is what the score is: the sum of leaves, exp(sum) - 1, or
   the value of the first family's input, whatever the trees say. */
#define CKH_EXPONENTS(X) X(high) X(low) X(form)
#define CKH_FORMS(X) X(SUM) X(LOG) X(INPUT)
#define CKH_BRANCH(X) X(test) X(left) X(right)
#define CKH_FAMILY(X) X(input) X(flags) X(first) X(count)
#define CKH_SET(X) X(first) X(count)

/* Of groups: the codes of its problems, and the sizes of what follows. */
#define CKH_GROUP(X) X(direction) X(dtype) X(layout) X(ndim) X(program) X(tiles) X(variants) X(blocks) X(reasons)
#define CKH_MASK_COUNTS(X) X(fixed) X(all)
#define CKH_SOURCE(X) X(kind) X(source) X(mask) X(partition)
#define CKH_RANGE(X) X(first) X(tiles)

#define CKH_HEAD_ARRAYS(X) X(text, char) X(name, int32_t) X(facts, ckh_facts) X(limit, double) X(calibration, double)
#define CKH_PROGRAM_ARRAYS(X)                                                                                   \
  X(counts, ckh_counts) X(shape, ckh_shape) X(classes, int32_t) X(node, ckh_node) X(literal, double)            \
  X(number, int64_t) X(output, ckh_output) X(calculation, ckh_calculation) X(comparison, ckh_comparison)        \
  X(step, ckh_step)
#define CKH_FOREST_ARRAYS(X)                                                                                    \
  X(exponents, ckh_exponents) X(roots, int32_t) X(nodes, ckh_branch) X(leaves, ckh_leaf) X(family, ckh_family)  \
  X(thresholds, double) X(sets, ckh_set) X(words, uint32_t)
#define CKH_GROUP_ARRAYS(X) X(group, ckh_group_record) X(kernel, int32_t) X(decision, int32_t) X(step, ckh_step)
#define CKH_POOL_ARRAYS(X) X(values, double) X(class_starts, int32_t) X(class_masks, uint64_t)
#define CKH_PLAN_ARRAYS(X) X(counts, ckh_mask_counts) X(family, ckh_source) X(variant_masks, uint64_t)
#define CKH_BLOCK_ARRAYS(X) X(range, ckh_range) X(candidate, int32_t) X(tile_of, int32_t) X(variant_of, int32_t)
#define CKH_MASKS_ARRAYS(X) X(masks, uint64_t)
