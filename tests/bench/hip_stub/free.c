/* A HIP runtime whose calls cost nothing: what passes between two events is what the host does to launch kernels.

   Events take the CPU time of the thread. Kernels are not run; stub_launches and stub_zeroed count what was requested. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct { uint32_t x, y, z; } dim3;

long stub_launches, stub_zeroed;
static struct timespec times[64];
static int events;

static double ns(const struct timespec* at) { return 1e9 * (double)at->tv_sec + (double)at->tv_nsec; }

int hipEventCreate(void** event) { *event = &times[events++ % 64]; return 0; }
int hipEventDestroy(void* event) { (void)event; return 0; }
int hipEventRecord(void* event, void* stream) { (void)stream; return clock_gettime(CLOCK_THREAD_CPUTIME_ID, event); }
int hipEventSynchronize(void* event) { (void)event; return 0; }
int hipEventElapsedTime(float* ms, void* start, void* stop) { *ms = (float)((ns(stop) - ns(start)) / 1e6); return 0; }

int hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream) {
    (void)f, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    ++stub_launches;
    return 0;
}
int hipMemsetAsync(void* to, int byte, size_t size, void* stream) {
    (void)to, (void)byte, (void)size, (void)stream;
    ++stub_zeroed;
    return 0;
}

static struct { dim3 grid, block; size_t shared; void* stream; } call;
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    call.grid = grid, call.block = block, call.shared = shared, call.stream = stream;
    return 0;
}
int __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
    *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
    return 0;
}
static void* module;
void** __hipRegisterFatBinary(const void* data) { (void)data; return &module; }
void __hipUnregisterFatBinary(void** one) { (void)one; }
void __hipRegisterFunction(void** m, const void* f, char* d, const char* name, unsigned t, void* a, void* b, void* c,
                           void* g, int* w) {
    (void)m, (void)f, (void)d, (void)name, (void)t, (void)a, (void)b, (void)c, (void)g, (void)w;
}

int hipGetDevice(int* device) { *device = 0; return 0; }
int hipGetDevicePropertiesR0600(char* properties, int device) { (void)device; memset(properties, 0, 1472); return 0; }
int hipDeviceGetAttribute(int* value, int attribute, int device) { (void)attribute, (void)device; *value = 64; return 0; }
int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads, size_t shared) {
    (void)f, (void)threads, (void)shared;
    *blocks = 1;
    return 0;
}
int hipExtStreamGetCUMask(void* stream, uint32_t words, uint32_t* mask) {
    (void)stream;
    memset(mask, 0xff, words * sizeof *mask);
    return 0;
}
int hipDeviceSynchronize(void) { return 0; }
int hipStreamSynchronize(void* stream) { (void)stream; return 0; }
int hipGetLastError(void) { return 0; }
int hipPeekAtLastError(void) { return 0; }
const char* hipGetErrorString(int code) { (void)code; return "no error"; }
