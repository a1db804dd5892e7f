/* A HIP runtime without a GPU, for tests: malloc and memcpy, and trouble on command.

   Addresses "on the device" are not those of the host: using one there crashes, as it should.
   Kernels of the tests call stub_host() for every pointer and stub_launch() when they start.

   CKH_STUB_GPUS            how many there are; 1 if not set
   CKH_STUB_MEMORY          the most bytes that hipMalloc gives at a time
   CKH_STUB_STICKY_AFTER    from the launch of this number on, counted from 1, every call fails with error 700
   CKH_STUB_CORRUPT_AT      at the launch of this number, a bit of every buffer's first number flips
   CKH_STUB_BROKEN          a file: if it exists, hipMalloc of as many bytes as it says, or more, fails with error 719
   CKH_STUB_LOG             a file that gets a line for every hipMalloc and upload */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OFFSET ((uintptr_t)1 << 60)
#define GUARD 4096
#define MOST 4096

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, ILLEGAL_ADDRESS = 700, LAUNCH_FAILURE = 719 };

static struct {
    char* start;
    size_t size;
} buffers[MOST];
static long launches;
static int last_error;

static long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int result(int code) {
    const long sticky = number("CKH_STUB_STICKY_AFTER", 0);
    if (sticky > 0 && launches >= sticky) code = ILLEGAL_ADDRESS;
    if (code) last_error = code;
    return code;
}

static void note(const char* what, size_t size) {
    const char* name = getenv("CKH_STUB_LOG");
    FILE* file = name ? fopen(name, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %zu\n", what, size);
    fclose(file);
}

static int is_broken(size_t size) {
    const char* name = getenv("CKH_STUB_BROKEN");
    FILE* file = name ? fopen(name, "r") : NULL;
    if (!file) return 0;
    size_t least = 0;
    const int found = fscanf(file, "%zu", &least);
    fclose(file);
    return found == 1 && size >= least;
}

void* stub_host(const void* device) { return (void*)((uintptr_t)device - OFFSET); }

/* The host's address of bytes that must lie in one buffer, or NULL. */
static char* inside(const void* device, size_t size) {
    char* at = stub_host(device);
    for (int i = 0; i < MOST; ++i)
        if (buffers[i].start && at >= buffers[i].start && at + size <= buffers[i].start + buffers[i].size) return at;
    return NULL;
}

int stub_launch(void) {
    ++launches;
    if (launches == number("CKH_STUB_CORRUPT_AT", 0))
        for (int i = 0; i < MOST; ++i)
            if (buffers[i].size > 2 * GUARD) buffers[i].start[GUARD + 1] ^= 0x40;
    return result(OK);
}

int hipGetDeviceCount(int* count) {
    *count = (int)number("CKH_STUB_GPUS", 1);
    return result(*count ? OK : NO_DEVICE);
}

int hipSetDevice(int device) { return result(device < number("CKH_STUB_GPUS", 1) ? OK : INVALID_DEVICE); }

int hipMalloc(void** pointer, size_t size) {
    note("malloc", size);
    if (is_broken(size)) return result(LAUNCH_FAILURE);
    if (result(OK)) return last_error;
    if (size > (size_t)number("CKH_STUB_MEMORY", 1L << 40)) return result(OUT_OF_MEMORY);
    for (int i = 0; i < MOST; ++i) {
        if (buffers[i].start) continue;
        char* start = aligned_alloc(GUARD, (size + GUARD - 1) / GUARD * GUARD);
        if (!start) break;
        buffers[i].start = start;
        buffers[i].size = size;
        *pointer = (void*)((uintptr_t)start + OFFSET);
        return result(OK);
    }
    return result(OUT_OF_MEMORY);
}

int hipFree(void* pointer) {
    char* start = stub_host(pointer);
    for (int i = 0; i < MOST; ++i) {
        if (buffers[i].start != start) continue;
        free(start);
        buffers[i].start = NULL;
        buffers[i].size = 0;
        return result(OK);
    }
    return result(INVALID);
}

int hipMemcpy(void* to, const void* from, size_t size, int kind) {
    char* buffer = inside(kind == 1 ? to : from, size);
    if (!buffer) return result(INVALID);
    if (kind == 1) note("upload", size);
    memcpy(kind == 1 ? buffer : to, kind == 1 ? from : buffer, size);
    return result(OK);
}

int hipMemset(void* to, int byte, size_t size) {
    char* buffer = inside(to, size);
    if (!buffer) return result(INVALID);
    memset(buffer, byte, size);
    return result(OK);
}

int hipDeviceSynchronize(void) { return result(OK); }

int hipGetLastError(void) {
    const int code = last_error;
    last_error = OK;
    return result(OK) ? last_error : code;
}

const char* hipGetErrorString(int code) {
    switch (code) {
        case INVALID: return "invalid argument";
        case OUT_OF_MEMORY: return "out of memory";
        case NO_DEVICE: return "no ROCm-capable device is detected";
        case ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
        case LAUNCH_FAILURE: return "unspecified launch failure";
        default: return "no error";
    }
}
