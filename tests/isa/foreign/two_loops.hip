// gfx942: two_loops
// Two loops, the second of which is longer.
extern "C" __attribute__((global)) void two_loops(float* to, const float* from, int count) {
    float sum = 0, product = 1;
#pragma nounroll
    for (int i = 0; i < count; ++i) sum += from[i];
#pragma nounroll
    for (int i = 0; i < count; ++i) {
        product = product * from[2 * i] + from[2 * i + 1];
        product = __builtin_sqrtf(product) * sum + from[3 * i];
    }
    *to = sum + product;
}
