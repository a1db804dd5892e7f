/* A HIP runtime without a GPU, for tests: malloc and memcpy, a clock that is simulated, and trouble on command.

   Addresses "on the device" are not those of the host: using one there crashes, as it should.
   Kernels of the tests call stub_host() for every pointer, and those that are not launched call stub_launch().

   CKH_STUB_GPUS            how many there are; 1 if not set
   CKH_STUB_MEMORY          the most bytes that hipMalloc gives at a time
   CKH_STUB_CORRUPT_AT      at the launch of this number, a bit of every buffer's first number flips
   CKH_STUB_LOG             a file that gets a line for every hipMalloc and upload
   CKH_STUB_FAULTS          what goes wrong (see stub_arm below)
   CKH_STUB_STATE           a file with what goes wrong in every process that starts from now on; kernels write it
   CKH_STUB_CLOCK           how the clock goes (see clocks below) */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OFFSET ((uintptr_t)1 << 60)
#define GUARD 4096
#define MOST 4096

typedef struct { uint32_t x, y, z; } dim3;

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_HANDLE = 400 };

static const struct { int code; const char* text; } errors[] = {
    {INVALID, "invalid argument"},
    {OUT_OF_MEMORY, "out of memory"},
    {NO_DEVICE, "no ROCm-capable device is detected"},
    {INVALID_DEVICE, "invalid device ordinal"},
    {214, "uncorrectable ECC error encountered"},
    {INVALID_HANDLE, "invalid resource handle"},
    {700, "an illegal memory access was encountered"},
    {709, "context is destroyed"},
    {719, "unspecified launch failure"},
    {999, "unknown error"},
};

static struct { char* start; size_t size; } buffers[MOST];
static long launches, writes;
static int last_error, lasting_error;

static long number(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text ? atol(text) : otherwise;
}

/* Faults: CALL[@N[+]]=EFFECT, separated by spaces. CALL is a function below or "*"; N is which call of it, counted from 1
   since the fault was armed, and with "+" all from then on; without N all. EFFECT is the number of an error, with "!" one
   that lasts; "ms:X", what hipEventElapsedTime says; "count:X", what hipGetDeviceCount says; "hang", "crash"; "page" or
   "reset", which end the process as ROCm does at an access to no page and when the GPU is reset; "all", which is a reset
   of all GPUs: of the other processes the next call to wait fails. */
static struct fault { char call[48], effect[24]; long left; int onward; } faults[32];
static int fault_count = -1; /* what the environment says was not read yet */
static int has_clock;
void stub_clock(const char* text);
void stub_arm(const char* text);

static void arm(const char* text) {
    char words[1024], *rest = words, *word;
    snprintf(words, sizeof words, "%s", text);
    while ((word = strtok_r(rest, " \n", &rest))) {
        struct fault one = {.left = 1, .onward = 1};
        char which[24] = "", plus = 0;
        if (fault_count >= 32 || sscanf(word, "%47[^@=]%23[@+0-9]=%23s", one.call, which, one.effect) != 3) {
            if (fault_count >= 32 || sscanf(word, "%47[^@=]=%23s", one.call, one.effect) != 2) abort();
        } else {
            one.onward = sscanf(which, "@%ld%c", &one.left, &plus) == 2;
        }
        faults[fault_count++] = one;
    }
}

static long resets; /* of all GPUs, before this process began */

/* Reads the file of what is to last; how many resets of all GPUs it has seen. */
static long read_state(char* line, int size) {
    const char* name = getenv("CKH_STUB_STATE");
    FILE* file = name ? fopen(name, "r") : NULL;
    long count = 0;
    if (!file) return 0;
    while (fgets(line, size, file)) count += !strcmp(line, "reset\n");
    fclose(file);
    return count;
}

/* Adds a line to it. */
static void write_state(const char* line) {
    FILE* file = fopen(getenv("CKH_STUB_STATE"), "a");
    if (!file) abort();
    fprintf(file, "%s\n", line);
    fclose(file);
}

static void read_environment(void) {
    fault_count = 0;
    if (!has_clock) stub_clock(getenv("CKH_STUB_CLOCK") ? getenv("CKH_STUB_CLOCK") : "");
    const char* text = getenv("CKH_STUB_FAULTS");
    char line[1024] = "";
    resets = read_state(line, sizeof line);
    if (strchr(line, '=')) arm(line);
    if (text) stub_arm(text);
}

/* Arms faults: of this process, with "once " in front only if no process did so before, and with "always " also of every
   process from then on. */
void stub_arm(const char* text) {
    if (fault_count < 0) read_environment();
    const int once = !strncmp(text, "once ", 5), always = !strncmp(text, "always ", 7);
    const char* program = text + (once ? 5 : always ? 7 : 0);
    if ((once || always) && !access(getenv("CKH_STUB_STATE"), F_OK)) return;
    if (once || always) write_state(once ? "once" : program);
    arm(program);
}

static int end_as_rocm(const char* what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static int happens(const char* effect) {
    if (!strcmp(effect, "hang")) for (;;) pause();
    if (!strcmp(effect, "crash")) *(volatile int*)8 = 1;
    if (!strcmp(effect, "page"))
        end_as_rocm("Memory access fault by GPU node-1 (Agent handle: 0x55d0c0de) on address 0x7f0000000000. Reason: "
                    "Page not present or supervisor privilege.");
    if (!strcmp(effect, "reset")) end_as_rocm("HW Exception by GPU node-1 (Agent handle: 0x55d0c0de) reason :GPU Hang");
    if (!strcmp(effect, "all")) write_state("reset"), effect = "999!";
    const int code = atoi(effect);
    if (strchr(effect, '!')) lasting_error = code;
    return code;
}

static int is_due(struct fault* one, const char* call) {
    if (strcmp(one->call, call) && strcmp(one->call, "*")) return 0;
    const long left = --one->left;
    return !left || (left < 0 && one->onward);
}

/* What a call is to return at once, as a fault or because an error lasts. */
static int enter(const char* call) {
    if (fault_count < 0) read_environment();
    int code = lasting_error;
    for (struct fault* one = faults; !code && one < faults + fault_count; ++one)
        if (!strchr(one->effect, ':') && is_due(one, call)) code = happens(one->effect);
    if (code) last_error = code;
    return code;
}

/* What a call is to say instead of the truth. */
static double said(const char* call, double truth) {
    for (struct fault* one = faults; one < faults + fault_count; ++one)
        if (strchr(one->effect, ':') && is_due(one, call)) return strtod(strchr(one->effect, ':') + 1, NULL);
    return truth;
}

static int result(int code) {
    if (code) last_error = code;
    return code;
}

#define ENTER() do { const int fault = enter(__func__); if (fault) return fault; } while (0)

/* Clocks: time passes by what is called and launched, not by waiting. The GPU works at the product of these speeds, given
   as NAME=NUMBER,NUMBER,..., separated by spaces:
     start=MS               the time at which the clock begins
     ramp=MS,SPEED          until that time
     throttle=MS,SPEED      from that time on
     steps=MS,SPEED         to and fro, each for that long on average
     idle=MS,SPEED,MS       for the second time after no kernel ran for the first one
     other=MS,MS            another process, which comes after the first time, and stays for the second, on average
     noise=SHARE            of a time, at most, by which what is between two events varies, 0.0001 if not said
     launch=US              that the host takes for a launch of a kernel or of a graph, 2 if not said
     gap=US                 that the GPU takes for a kernel beside its work
     host=MS                that the host takes to look at what it has downloaded
     events=FACTOR          of what lies between two events, which they then say
     seed=N                 of what is random */
enum { START, RAMP, THROTTLE, STEPS, IDLE, OTHER, NOISE, LAUNCH, GAP, HOST, EVENTS, SEED, SETTINGS };
static const char* const setting_names[SETTINGS] = {"start", "ramp",   "throttle", "steps", "idle",
                                                    "other", "noise", "launch", "gap",      "host", "events", "seed"};
static double settings[SETTINGS][3];
static double host_ms, gpu_ms; /* the host's time, and until when the GPU has work */
static double step_ms, other_ms, warm_ms, noise_factor;
static int is_stepped, is_other;
static uint64_t random_state;

static double uniform(void) {
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double wait_of(double mean_ms) { return mean_ms > 0 ? -mean_ms * log(1 - uniform()) : INFINITY; }

static struct timespec began; /* of this process's clock */

/* Begins time anew, with such a clock. */
void stub_clock(const char* text) {
    if (!has_clock) syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &began);
    char words[512], *rest = words, *word;
    memset(settings, 0, sizeof settings);
    settings[THROTTLE][0] = settings[IDLE][0] = INFINITY;
    settings[NOISE][0] = 1e-4, settings[LAUNCH][0] = 2, settings[EVENTS][0] = 1;
    snprintf(words, sizeof words, "%s", text);
    while ((word = strtok_r(rest, " ", &rest))) {
        const char* value = strchr(word, '=');
        int known = 0;
        for (int i = 0; value && i < SETTINGS; ++i) {
            if (strncmp(word, setting_names[i], (size_t)(value - word))) continue;
            double* to = settings[i];
            known = sscanf(value, "=%lf,%lf,%lf", to, to + 1, to + 2) > 0;
        }
        if (!known) abort();
    }
    random_state = (uint64_t)settings[SEED][0];
    host_ms = gpu_ms = settings[START][0];
    is_stepped = is_other = 0, warm_ms = 0, noise_factor = 1, has_clock = 1;
    step_ms = host_ms + wait_of(settings[STEPS][0]), other_ms = host_ms + wait_of(settings[OTHER][0]);
}

double stub_now_ms(void) { return host_ms; }
void stub_pass(double ms) { host_ms += ms; }

/* The clock of processes that preload this: once they call HIP, time passes for them as for the simulated host alone, so
   that a busy machine changes nothing. */
int clock_gettime(clockid_t clock, struct timespec* now) {
    if (clock != CLOCK_MONOTONIC || !has_clock) return (int)syscall(SYS_clock_gettime, clock, now);
    const double ns = (double)began.tv_nsec + fmod(host_ms, 1e3) * 1e6;
    now->tv_sec = began.tv_sec + (time_t)(host_ms / 1e3) + (time_t)(ns / 1e9), now->tv_nsec = (long)fmod(ns, 1e9);
    return 0;
}

/* The GPU's speed at a time, and until when it has that. */
static double speed_at(double ms, double* until) {
    double speed = 1;
    *until = INFINITY;
    const struct { double ms, before, after; } changes[] = {
        {settings[RAMP][0], settings[RAMP][1], 1},
        {settings[THROTTLE][0], 1, settings[THROTTLE][1]},
        {warm_ms, settings[IDLE][1], 1},
    };
    for (int i = 0; i < 3; ++i) {
        speed *= ms < changes[i].ms ? changes[i].before : changes[i].after;
        if (ms < changes[i].ms) *until = fmin(*until, changes[i].ms);
    }
    while (ms >= step_ms) is_stepped = !is_stepped, step_ms += wait_of(settings[STEPS][0]);
    while (ms >= other_ms) is_other = !is_other, other_ms += wait_of(settings[OTHER][is_other]);
    if (is_stepped) speed *= settings[STEPS][1];
    *until = fmin(*until, fmin(step_ms, other_ms));
    return is_other ? 0 : speed;
}

/* Gives the GPU work that takes so long at full speed. */
static void work(double ms) {
    if (host_ms > gpu_ms + settings[IDLE][0]) warm_ms = host_ms + settings[IDLE][2];
    double until, at = fmax(host_ms, gpu_ms);
    for (;;) {
        const double speed = speed_at(at, &until), can_ms = speed > 0 ? (until - at) * speed : 0;
        if (can_ms >= ms) {
            gpu_ms = ms > 0 ? at + ms / speed : at;
            return;
        }
        ms -= can_ms, at = until;
    }
}

static int wait_for(double ms) {
    char line[1024];
    host_ms = fmax(host_ms, ms);
    if (read_state(line, sizeof line) <= resets) return OK;
    return last_error = lasting_error = 999;
}

#define BYTES_PER_MS 1e9 /* of the GPU's memory */
#define LINK_BYTES_PER_MS 2e7
#define CALL_MS 2e-4

static void note(const char* what, size_t size) {
    const char* name = getenv("CKH_STUB_LOG");
    FILE* file = name ? fopen(name, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %zu\n", what, size);
    fclose(file);
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
    ENTER();
    if (++launches == number("CKH_STUB_CORRUPT_AT", 0))
        for (int i = 0; i < MOST; ++i)
            if (buffers[i].size > 2 * GUARD) buffers[i].start[GUARD + 1] ^= 0x40;
    return OK;
}

int hipGetDeviceCount(int* count) {
    ENTER();
    *count = (int)said(__func__, (double)number("CKH_STUB_GPUS", 1));
    return result(*count ? OK : NO_DEVICE);
}

int hipSetDevice(int device) {
    ENTER();
    return result(device < number("CKH_STUB_GPUS", 1) ? OK : INVALID_DEVICE);
}

int hipMalloc(void** pointer, size_t size) {
    note("malloc", size);
    ENTER();
    if (size > (size_t)number("CKH_STUB_MEMORY", 1L << 40)) return result(OUT_OF_MEMORY);
    for (int i = 0; i < MOST; ++i) {
        if (buffers[i].start) continue;
        char* start = aligned_alloc(GUARD, (size + GUARD - 1) / GUARD * GUARD);
        if (!start) break;
        buffers[i].start = start;
        buffers[i].size = size;
        *pointer = (void*)((uintptr_t)start + OFFSET);
        return OK;
    }
    return result(OUT_OF_MEMORY);
}

int hipFree(void* pointer) {
    ENTER();
    char* start = stub_host(pointer);
    for (int i = 0; i < MOST; ++i) {
        if (buffers[i].start != start) continue;
        free(start);
        buffers[i].start = NULL;
        buffers[i].size = 0;
        return OK;
    }
    return result(INVALID);
}

int hipMemcpy(void* to, const void* from, size_t size, int kind) {
    ENTER();
    char* target = kind == 2 ? to : inside(to, size);
    const char* source = kind == 1 ? from : inside(from, size);
    if (!target || !source) return result(INVALID);
    if (kind == 1) note("upload", size);
    if (kind != 2) ++writes;
    memcpy(target, source, size);
    host_ms = fmax(host_ms, gpu_ms) + (double)size / LINK_BYTES_PER_MS + (kind == 2 ? settings[HOST][0] : 0);
    return OK;
}

static int set(void* to, int byte, size_t size) {
    char* buffer = inside(to, size);
    if (!buffer) return result(INVALID);
    memset(buffer, byte, size);
    ++writes;
    work((double)size / BYTES_PER_MS);
    return OK;
}

int hipMemset(void* to, int byte, size_t size) {
    ENTER();
    return set(to, byte, size);
}

int hipMemsetAsync(void* to, int byte, size_t size, void* stream) {
    ENTER();
    (void)stream;
    return set(to, byte, size);
}

int hipDeviceSynchronize(void) {
    ENTER();
    return wait_for(gpu_ms);
}

/* Kernels are functions of one pointer, their argument, which the stub is told of with what they take at full speed; all
   others are taken for empty ones. What a kernel has written it would write again: it is run again only when memory has
   changed since it had that argument. */
static struct { const void* function; double ms; } kernels[1024];
static struct { const void *function, *argument; long writes; } ran[1024];

void stub_kernel(const void* function, double ns) {
    for (int i = 0; i < 1024; ++i) {
        if (kernels[i].function && kernels[i].function != function) continue;
        kernels[i].function = function, kernels[i].ms = ns / 1e6;
        return;
    }
    abort();
}

/* What a kernel takes, or NULL if it is an empty one. */
static const double* ms_of(const void* function) {
    for (int i = 0; i < 1024 && kernels[i].function; ++i)
        if (kernels[i].function == function) return &kernels[i].ms;
    return NULL;
}

static void run(const void* function, const void* argument) {
    const double* ms = ms_of(function);
    const size_t at = ((uintptr_t)argument >> 4) % 1024;
    if (ms && (ran[at].function != function || ran[at].argument != argument || ran[at].writes != writes)) {
        ((void (*)(const void*))(uintptr_t)function)(argument);
        ran[at].function = function, ran[at].argument = argument, ran[at].writes = writes;
    }
    work(((ms ? *ms : 0) + settings[GAP][0] / 1e3) * noise_factor);
}

/* Streams take turns; one may have what it is given captured, as a graph. */
struct graph { int count; struct { const void *function, *argument; } nodes[4096]; };
struct stream { struct graph* captured; };

int hipLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared, struct stream* stream) {
    ENTER();
    (void)grid, (void)block, (void)shared;
    const int code = stub_launch();
    if (code) return code;
    const void* argument = ms_of(function) ? *(void**)arguments[0] : NULL;
    if (stream && stream->captured) {
        struct graph* graph = stream->captured;
        if (graph->count == 4096) return result(OUT_OF_MEMORY);
        graph->nodes[graph->count].function = function, graph->nodes[graph->count++].argument = argument;
        return OK;
    }
    host_ms += settings[LAUNCH][0] / 1e3;
    run(function, argument);
    return OK;
}

int hipStreamCreateWithFlags(struct stream** stream, unsigned flags) {
    ENTER();
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return *stream ? OK : result(OUT_OF_MEMORY);
}

int hipStreamDestroy(struct stream* stream) {
    ENTER();
    free(stream);
    return OK;
}

int hipStreamSynchronize(struct stream* stream) {
    ENTER();
    (void)stream;
    return wait_for(gpu_ms);
}

int hipStreamBeginCapture(struct stream* stream, int mode) {
    ENTER();
    (void)mode;
    stream->captured = calloc(1, sizeof *stream->captured);
    return stream->captured ? OK : result(OUT_OF_MEMORY);
}

int hipStreamEndCapture(struct stream* stream, struct graph** graph) {
    *graph = stream->captured, stream->captured = NULL;
    const int fault = enter(__func__);
    if (!fault) return OK;
    free(*graph);
    *graph = NULL;
    return fault;
}

int hipGraphInstantiateWithFlags(struct graph** executable, struct graph* graph, unsigned long long flags) {
    ENTER();
    (void)flags;
    *executable = malloc(sizeof **executable);
    if (!*executable) return result(OUT_OF_MEMORY);
    **executable = *graph;
    return OK;
}

int hipGraphLaunch(struct graph* executable, struct stream* stream) {
    ENTER();
    (void)stream;
    host_ms += settings[LAUNCH][0] / 1e3;
    for (int i = 0; i < executable->count; ++i) run(executable->nodes[i].function, executable->nodes[i].argument);
    return OK;
}

int hipGraphDestroy(struct graph* graph) {
    ENTER();
    free(graph);
    return OK;
}

int hipGraphExecDestroy(struct graph* executable) {
    ENTER();
    free(executable);
    return OK;
}

/* Events hold when the GPU came to them. */
int hipEventCreate(double** event) {
    ENTER();
    *event = calloc(1, sizeof **event);
    return *event ? OK : result(OUT_OF_MEMORY);
}

int hipEventDestroy(double* event) {
    ENTER();
    free(event);
    return OK;
}

int hipEventRecord(double* event, void* stream) {
    ENTER();
    (void)stream;
    work(0);
    host_ms += CALL_MS;
    *event = gpu_ms;
    noise_factor = 1 + settings[NOISE][0] * (2 * uniform() - 1);
    return OK;
}

int hipEventSynchronize(double* event) {
    ENTER();
    return wait_for(*event);
}

int hipEventElapsedTime(float* ms, const double* start, const double* stop) {
    ENTER();
    *ms = (float)said(__func__, settings[EVENTS][0] * (*stop - *start));
    return OK;
}

int hipGetLastError(void) {
    const int code = last_error;
    last_error = lasting_error;
    return code;
}

const char* hipGetErrorString(int code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
        if (errors[i].code == code) return errors[i].text;
    return code ? "unknown error" : "no error";
}
