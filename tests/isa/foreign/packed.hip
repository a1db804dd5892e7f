// gfx90a gfx942: packed
// For two GPUs, in a compressed bundle.
extern "C" __attribute__((global)) void packed(float* to, int count) {
    float sum = 0;
#pragma nounroll
    for (int i = 0; i < count; ++i) sum = sum * 0.5f + to[i];
    *to = sum;
}
