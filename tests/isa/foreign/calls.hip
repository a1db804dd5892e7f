// gfx942: calls
// A kernel that calls a function, whose loop is not its own.
__attribute__((device, noinline)) float halved(const float* from, int count) {
    float sum = 0;
    for (int i = 0; i < count; ++i) sum = sum * 0.5f + from[i];
    return sum;
}
extern "C" __attribute__((global)) void calls(float* to, const float* from, int count) { *to = halved(from, count); }
