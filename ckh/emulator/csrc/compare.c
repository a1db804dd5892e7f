/* Vector compares: a bit a lane. */
#include "operands.h"

#define FLOAT_COMPARES(X, T, A, B, type) \
    X(lt_##T, type, A < B) X(eq_##T, type, A == B) X(le_##T, type, A <= B) X(gt_##T, type, A > B) \
    X(lg_##T, type, A < B || A > B) X(ge_##T, type, A >= B) X(o_##T, type, A == A && B == B) X(u_##T, type, A != A || B != B) \
    X(nge_##T, type, !(A >= B)) X(nlg_##T, type, !(A < B || A > B)) X(ngt_##T, type, !(A > B)) X(nle_##T, type, !(A <= B)) \
    X(neq_##T, type, A != B) X(nlt_##T, type, !(A < B)) X(f_##T, type, 0) X(tru_##T, type, 1)
#define INT_COMPARES(X, T, A, B, type) \
    X(lt_##T, type, A < B) X(eq_##T, type, A == B) X(le_##T, type, A <= B) X(gt_##T, type, A > B) X(ne_##T, type, A != B) \
    X(ge_##T, type, A >= B) X(f_##T, type, 0) X(t_##T, type, 1)
#define COMPARES(X) \
    FLOAT_COMPARES(X, f16, H0, H1, "mhh") FLOAT_COMPARES(X, f32, F0, F1, "mff") FLOAT_COMPARES(X, f64, D0, D1, "mdd") \
    INT_COMPARES(X, i16, J0, J1, "mkk") INT_COMPARES(X, u16, K0, K1, "mkk") INT_COMPARES(X, i32, I0, I1, "muu") \
    INT_COMPARES(X, u32, U0, U1, "muu") INT_COMPARES(X, i64, L0, L1, "mqq") INT_COMPARES(X, u64, Q0, Q1, "mqq") \
    X(class_f16, "mhu", class16(U0) & U1) X(class_f32, "mfu", class32(U0) & U1) X(class_f64, "mdu", class64(Q0) & U1)
#define X(name, types, expression) \
    static void x_cmp_##name(Args* a) { u64 bits = 0; EACH bits |= (u64)((expression) != 0) << n; a->bits = bits; }
COMPARES(X)
#undef X

static const Op OPS[] = {
#define X(name, types, expression) \
    {"v_cmp_" #name, run_vector, FUNCTION(cmp_##name), types, 0, 0}, \
    {"v_cmpx_" #name, run_vector, FUNCTION(cmp_##name), types, 1, 0}, /* to EXEC as well */
    COMPARES(X)
#undef X
};
const Op* compare_op(const char* name) { return op_in(OPS, sizeof OPS / sizeof *OPS, name); }
