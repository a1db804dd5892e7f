/* A HIP runtime whose calls cost nothing: what passes between two events is what the host does to launch kernels.

   Events take the CPU time of the thread. Kernels are not run; stub_launches, stub_zeroed and stub_copies count what was
   requested, stub_graphs the graphs that were made, and stub_open streams, graphs and memory that are not freed. A launch that a
   stream captures counts as often as its graph is started. With CKH_STUB_NO_GRAPH, no stream can capture. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NOT_SUPPORTED = 801 };

typedef struct { uint32_t x, y, z; } dim3;

long stub_launches, stub_zeroed, stub_copies, stub_graphs, stub_open;
static struct timespec times[64];
static int events;

static double ns(const struct timespec* at) { return 1e9 * (double)at->tv_sec + (double)at->tv_nsec; }

int hipEventCreate(void** event) { *event = &times[events++ % 64]; return OK; }
int hipEventDestroy(void* event) { (void)event; return OK; }
int hipEventRecord(void* event, void* stream) { (void)stream; return clock_gettime(CLOCK_THREAD_CPUTIME_ID, event); }
int hipEventSynchronize(void* event) { (void)event; return OK; }
int hipEventElapsedTime(float* ms, void* start, void* stop) { *ms = (float)((ns(stop) - ns(start)) / 1e6); return OK; }

/* Streams and graphs: the launches that a stream has captured are the graph. */
static long captured;
static int stream, graph, *capturing;

int hipStreamCreateWithFlags(void** s, unsigned flags) { (void)flags; *s = &stream; ++stub_open; return OK; }
int hipStreamDestroy(void* s) { (void)s; --stub_open; return OK; }
int hipStreamBeginCapture(void* s, int mode) {
    (void)mode;
    if (getenv("CKH_STUB_NO_GRAPH")) return NOT_SUPPORTED;
    capturing = s, captured = 0;
    return OK;
}
int hipStreamEndCapture(void* s, void** made) {
    (void)s;
    *made = &graph, capturing = NULL, ++stub_graphs, ++stub_open;
    return OK;
}
int hipGraphInstantiateWithFlags(void** made, void* g, unsigned long long flags) {
    (void)flags;
    *made = g, ++stub_open;
    return OK;
}
int hipGraphLaunch(void* g, void* s) { (void)g, (void)s; stub_launches += captured; return OK; }
int hipGraphExecDestroy(void* g) { (void)g; --stub_open; return OK; }
int hipGraphDestroy(void* g) { (void)g; --stub_open; return OK; }

int hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, void* s) {
    (void)f, (void)grid, (void)block, (void)arguments, (void)shared;
    if (s != NULL && s == capturing) ++captured;
    else ++stub_launches;
    return OK;
}
int hipMemsetAsync(void* to, int byte, size_t size, void* stream) {
    (void)to, (void)byte, (void)size, (void)stream;
    ++stub_zeroed;
    return OK;
}

int hipMalloc(void** pointer, size_t size) { *pointer = malloc(size), ++stub_open; return OK; }
int hipFree(void* pointer) { free(pointer), --stub_open; return OK; }
int hipMemcpy(void* to, const void* from, size_t size, int kind) {
    (void)kind;
    memcpy(to, from, size), ++stub_copies;
    return OK;
}

static struct { dim3 grid, block; size_t shared; void* stream; } call;
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    call.grid = grid, call.block = block, call.shared = shared, call.stream = stream;
    return OK;
}
int __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
    *grid = call.grid, *block = call.block, *shared = call.shared, *stream = call.stream;
    return OK;
}
static void* module;
void** __hipRegisterFatBinary(const void* data) { (void)data; return &module; }
void __hipUnregisterFatBinary(void** one) { (void)one; }
void __hipRegisterFunction(void** m, const void* f, char* d, const char* name, unsigned t, void* a, void* b, void* c,
                           void* g, int* w) {
    (void)m, (void)f, (void)d, (void)name, (void)t, (void)a, (void)b, (void)c, (void)g, (void)w;
}

int hipGetDevice(int* device) { *device = 0; return OK; }
int hipGetDevicePropertiesR0600(char* properties, int device) { (void)device; memset(properties, 0, 1472); return OK; }
int hipDeviceGetAttribute(int* value, int attribute, int device) { (void)attribute, (void)device; *value = 64; return OK; }
int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads, size_t shared) {
    (void)f, (void)threads, (void)shared;
    *blocks = 1;
    return OK;
}
int hipExtStreamGetCUMask(void* stream, uint32_t words, uint32_t* mask) {
    (void)stream;
    memset(mask, 0xff, words * sizeof *mask);
    return OK;
}
int hipDeviceSynchronize(void) { return OK; }
int hipStreamSynchronize(void* stream) { (void)stream; return OK; }
int hipGetLastError(void) { return OK; }
int hipPeekAtLastError(void) { return OK; }
const char* hipGetErrorString(int code) { return code ? "operation not supported" : "no error"; }
