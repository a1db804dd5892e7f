/* A HIP runtime whose GPU is emulated: a stand-in for libamdhip64.

   Memory is the host's, between pages that cannot be touched. Kernels that libraries register are handed to launch.py, in
   this process, which loads their code; workgroup.c carries it out, one instruction after another, before the launch
   returns. There are no times: events are refused.

   CKH_EMU_ARCH    what GPU it says it is; gfx942 if not set
   CKH_EMU_CUS     how many compute units it says it has; 4 if not set
   CKH_EMU_MEMORY  how many bytes of memory; 4 GiB if not set */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_FUNCTION = 98, NO_DEVICE = 100, INVALID_DEVICE = 101,
    ILLEGAL_ADDRESS = 700, LAUNCH_FAILURE = 719, NOT_SUPPORTED = 801
};

typedef struct { uint32_t x, y, z; } dim3;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int last_error;
static char message[512]; /* what is behind NOT_SUPPORTED */
void emu_set_message(const char* text) { snprintf(message, sizeof message, "%s", text); }

static int result(int code) {
    if (code) last_error = code;
    return code;
}

static long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

/* ---- memory ---- */

enum { PAGE = 4096, UNTOUCHABLE = 1 << 16, ALIGNMENT = 256, MOST_FILLED = 64 << 20 };
enum { FRESH = 0xff }; /* NaN in every floating-point type */

typedef struct Allocation { char *map, *start; size_t map_size, size; struct Allocation* next; } Allocation;
static Allocation* allocations;
static size_t allocated;

/* The end lies as close to the untouchable page as its alignment allows. */
int hipMalloc(void** pointer, size_t size) {
    const size_t most = (size_t)number("CKH_EMU_MEMORY", 4L << 30);
    if (!pointer) return result(INVALID);
    if (size > most || allocated + size > most) return result(OUT_OF_MEMORY);
    const size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, inner = (rounded + PAGE - 1) / PAGE * PAGE;
    char* map = mmap(NULL, inner + 2 * UNTOUCHABLE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return result(OUT_OF_MEMORY);
    if (inner && mprotect(map + UNTOUCHABLE, inner, PROT_READ | PROT_WRITE)) {
        munmap(map, inner + 2 * UNTOUCHABLE);
        return result(OUT_OF_MEMORY);
    }
    Allocation* a = malloc(sizeof *a);
    *a = (Allocation){map, map + UNTOUCHABLE + inner - rounded, inner + 2 * UNTOUCHABLE, size, NULL};
    if (inner && inner < MOST_FILLED) memset(map + UNTOUCHABLE, FRESH, inner);
    pthread_mutex_lock(&lock);
    a->next = allocations;
    allocations = a;
    allocated += size;
    pthread_mutex_unlock(&lock);
    *pointer = a->start;
    return result(OK);
}

int hipFree(void* pointer) {
    if (!pointer) return result(OK);
    pthread_mutex_lock(&lock);
    for (Allocation** at = &allocations; *at; at = &(*at)->next) {
        Allocation* a = *at;
        if (a->start != pointer) continue;
        *at = a->next;
        allocated -= a->size;
        munmap(a->map, a->map_size);
        free(a);
        pthread_mutex_unlock(&lock);
        return result(OK);
    }
    pthread_mutex_unlock(&lock);
    return result(INVALID);
}

/* Whether bytes that begin in memory of ours lie in it; other addresses are the host's. */
static int fits(const void* address, size_t size) {
    const char* at = address;
    for (Allocation* a = allocations; a; a = a->next)
        if (at >= a->map && at < a->map + a->map_size) return at >= a->start && at + size <= a->start + a->size;
    return 1;
}

int hipMemcpy(void* to, const void* from, size_t size, int kind) {
    (void)kind;
    if (!fits(to, size) || !fits(from, size)) return result(INVALID);
    memmove(to, from, size);
    return result(OK);
}
int hipMemcpyAsync(void* to, const void* from, size_t size, int kind, void* s) { (void)s; return hipMemcpy(to, from, size, kind); }
int hipMemcpyWithStream(void* to, const void* from, size_t size, int kind, void* s) { (void)s; return hipMemcpy(to, from, size, kind); }
int hipMemcpyHtoD(void* to, void* from, size_t size) { return hipMemcpy(to, from, size, 1); }
int hipMemcpyDtoH(void* to, void* from, size_t size) { return hipMemcpy(to, from, size, 2); }
int hipMemset(void* to, int byte, size_t size) {
    if (!fits(to, size)) return result(INVALID);
    memset(to, byte, size);
    return result(OK);
}
int hipMemsetAsync(void* to, int byte, size_t size, void* s) { (void)s; return hipMemset(to, byte, size); }
int hipMemGetInfo(size_t* left, size_t* total) {
    *total = (size_t)number("CKH_EMU_MEMORY", 4L << 30);
    *left = *total - allocated;
    return result(OK);
}

/* ---- device ---- */

static const char* arch(void) { const char* text = getenv("CKH_EMU_ARCH"); return text && *text ? text : "gfx942"; }
const char* emu_arch(void) { return arch(); }
static int units(void) { return (int)number("CKH_EMU_CUS", 4); }
int emu_units(void) { return units(); }

int hipInit(unsigned flags) { (void)flags; return result(OK); }
int hipGetDeviceCount(int* count) { *count = 1; return result(OK); }
int hipSetDevice(int device) { return result(device == 0 ? OK : INVALID_DEVICE); }
int hipGetDevice(int* device) { *device = 0; return result(OK); }
int hipRuntimeGetVersion(int* version) { *version = 60000000; return result(OK); }
int hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }
int hipDeviceSynchronize(void) { return result(OK); }
int hipDeviceReset(void) { return result(OK); }

static void put(char* at, size_t offset, int32_t value) { memcpy(at + offset, &value, 4); }
static void put_wide(char* at, size_t offset, uint64_t value) { memcpy(at + offset, &value, 8); }

/* hipDeviceProp_t up to ROCm 5. */
int hipGetDeviceProperties(char* p, int device) {
    if (device) return result(INVALID_DEVICE);
    memset(p, 0, 792);
    snprintf(p, 256, "Emulated %s", arch());
    put_wide(p, 256, (uint64_t)number("CKH_EMU_MEMORY", 4L << 30));
    put_wide(p, 264, 65536);
    put(p, 272, 65536), put(p, 276, 64), put(p, 280, 1024), put(p, 284, 1024), put(p, 288, 1024), put(p, 292, 1024);
    for (int i = 0; i < 3; ++i) put(p, 296 + 4 * i, INT32_MAX);
    put(p, 308, 1000), put(p, 312, 1000), put(p, 328, 9), put(p, 332, 4), put(p, 336, units()), put(p, 340, 4 << 20);
    put(p, 344, 2048);
    snprintf(p + 396, 256, "%s:sramecc+:xnack-", arch());
    return result(OK);
}

/* hipDeviceProp_t since ROCm 6. */
int hipGetDevicePropertiesR0600(char* p, int device) {
    if (device) return result(INVALID_DEVICE);
    memset(p, 0, 1472);
    snprintf(p, 256, "Emulated %s", arch());
    put_wide(p, 288, (uint64_t)number("CKH_EMU_MEMORY", 4L << 30));
    put_wide(p, 296, 65536);
    put(p, 304, 65536), put(p, 308, 64), put(p, 320, 1024);
    for (int i = 0; i < 3; ++i) put(p, 324 + 4 * i, 1024), put(p, 336 + 4 * i, INT32_MAX);
    put(p, 348, 1000), put(p, 360, 9), put(p, 364, 4), put(p, 388, units()), put(p, 616, 4 << 20), put(p, 624, 2048);
    snprintf(p + 1160, 256, "%s:sramecc+:xnack-", arch());
    return result(OK);
}

int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads, size_t shared) {
    (void)f, (void)threads, (void)shared;
    *blocks = 1;
    return result(OK);
}

/* The units that a stream may use: all. */
int hipExtStreamGetCUMask(void* stream, uint32_t words, uint32_t* mask) {
    (void)stream;
    for (uint32_t i = 0; i < words; ++i) {
        const int left = units() - (int)i * 32;
        mask[i] = left >= 32 ? UINT32_MAX : left > 0 ? (1u << left) - 1 : 0;
    }
    return result(OK);
}

int hipDeviceGetAttribute(int* value, int attribute, int device) {
    (void)attribute, (void)device;
    *value = 0;
    emu_set_message("the emulator does not know device attributes");
    return result(NOT_SUPPORTED);
}

const char* hipGetErrorString(int code) {
    switch (code) {
        case OK: return "no error";
        case INVALID: return "invalid argument";
        case OUT_OF_MEMORY: return "out of memory";
        case INVALID_FUNCTION: return "invalid device function";
        case NO_DEVICE: return "no ROCm-capable device is detected";
        case INVALID_DEVICE: return "invalid device ordinal";
        case ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
        case LAUNCH_FAILURE: return "unspecified launch failure";
        case NOT_SUPPORTED: return message[0] ? message : "the emulator cannot do this";
        default: return "unknown error";
    }
}
const char* hipGetErrorName(int code) { return hipGetErrorString(code); }
int hipGetLastError(void) { const int code = last_error; last_error = OK; return code; }
int hipPeekAtLastError(void) { return last_error; }

/* ---- streams; events, and graphs, which only repeat what is timed, would be times ---- */

static int no_times(void) {
    emu_set_message("an emulated GPU has no times");
    return result(NOT_SUPPORTED);
}
int hipStreamCreate(void** s) { *s = NULL; return result(OK); }
int hipStreamCreateWithFlags(void** s, unsigned f) { (void)f; return hipStreamCreate(s); }
int hipStreamDestroy(void* s) { (void)s; return result(OK); }
int hipStreamSynchronize(void* s) { (void)s; return result(OK); }
int hipEventCreate(void** e) { *e = NULL; return no_times(); }
int hipEventCreateWithFlags(void** e, unsigned f) { (void)f; return hipEventCreate(e); }
int hipEventDestroy(void* e) { (void)e; return result(OK); }
int hipEventRecord(void* e, void* s) { (void)e, (void)s; return no_times(); }
int hipEventSynchronize(void* e) { (void)e; return no_times(); }
int hipEventElapsedTime(float* ms, void* a, void* b) { (void)ms, (void)a, (void)b; return no_times(); }
int hipStreamBeginCapture(void* s, int mode) { (void)s, (void)mode; return no_times(); }
int hipStreamEndCapture(void* s, void** graph) { (void)s; *graph = NULL; return no_times(); }
int hipGraphInstantiateWithFlags(void** e, void* graph, unsigned long long f) {
    (void)graph, (void)f;
    *e = NULL;
    return no_times();
}
int hipGraphLaunch(void* e, void* s) { (void)e, (void)s; return no_times(); }
int hipGraphExecDestroy(void* e) { (void)e; return result(OK); }
int hipGraphDestroy(void* graph) { (void)graph; return result(OK); }

/* ---- kernels ---- */

typedef struct { const void* f; const char* name; const void* bundle; } Function;
static Function* functions;
static int function_count, function_room;
static __thread struct { dim3 grid, block; size_t shared; void* stream; } configuration;

struct Wrapper { uint32_t magic, version; void *binary, *unused; };
void** __hipRegisterFatBinary(const struct Wrapper* w) { return (void**)&w->binary; }
void __hipUnregisterFatBinary(void** module) {
    for (int i = 0; i < function_count; ++i)
        if (functions[i].bundle == *module) functions[i--] = functions[--function_count];
}
void __hipRegisterFunction(void** module, const void* f, char* d, const char* name, unsigned t, void* a, void* b,
                           void* c, void* e, int* g) {
    (void)d, (void)t, (void)a, (void)b, (void)c, (void)e, (void)g;
    if (function_count == function_room) functions = realloc(functions, (function_room += 256) * sizeof *functions);
    functions[function_count++] = (Function){f, name, *module};
}
void __hipRegisterVar(void** m, void* v, char* h, char* n, int e, size_t s, int c, int g) { (void)m, (void)v, (void)h, (void)n, (void)e, (void)s, (void)c, (void)g; }
void __hipRegisterManagedVar(void* m, void** p, void* i, const char* n, size_t s, unsigned a) { (void)m, (void)p, (void)i, (void)n, (void)s, (void)a; }
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    configuration.grid = grid, configuration.block = block, configuration.shared = shared, configuration.stream = stream;
    return OK;
}
int __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
    *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared, *stream = configuration.stream;
    return OK;
}

/* What carries launches out, and returns 0 or an error's code. */
typedef int (*Launcher)(const char* name, const void* bundle, const uint32_t* grid, const uint32_t* block, void** arguments,
                        uint64_t shared);
static Launcher launcher;
void emu_set_launcher(Launcher f) { launcher = f; }

int hipLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, void* stream) {
    (void)stream;
    for (int i = 0; launcher && i < function_count; ++i)
        if (functions[i].f == f)
            return result(launcher(functions[i].name, functions[i].bundle, &grid.x, &block.x, arguments, shared));
    return result(INVALID_FUNCTION);
}
