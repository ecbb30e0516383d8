// A stand-in for ONNX Runtime's library that forwards to the real one, and does harm when a request asks for it.
//
// The first input of the model must be called `misdeed`: two int64, the number of a misdeed and its amount. What the
// misdeed returns replaces the number, so that the model can report it. The build defines REAL_LIBRARY and ENGINE,
// their folder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "misdeeds.h"

static const struct { const char *name; long (*run)(long); } MISDEEDS[] = {
#define ENTRY(name) {#name, name},
    {"none", NULL}, ALL_MISDEEDS(ENTRY)
};

long misdeed_number(const char *name) {
    for (size_t n = 0; n < sizeof MISDEEDS / sizeof *MISDEEDS; n++)
        if (!strcmp(MISDEEDS[n].name, name)) return n;
    return -1;
}

// ---- ONNX Runtime's C API (onnxruntime_c_api.h): tables of functions, to which releases only append.

typedef struct { const void *(*get_api)(uint32_t version); const char *(*get_version)(void); } ApiBase;
enum { RUN = 9, GET_TENSOR_MUTABLE_DATA = 51 };
typedef void *(*GetData)(void *value, void **data);
typedef void *(*Run)(void *, const void *, const char *const *, void *const *, size_t, const char *const *, size_t,
                     void **);

static const ApiBase *real;
static void **functions;
static Run real_run;

static void *run(void *session, const void *options, const char *const *names, void *const *inputs, size_t count,
                 const char *const *output_names, size_t outputs, void **results) {
    int64_t *request = NULL;
    GetData get_data = (GetData)functions[GET_TENSOR_MUTABLE_DATA];
    if (count > 0 && !strcmp(names[0], "misdeed")) get_data(inputs[0], (void **)&request);
    if (request && request[0] > 0 && (size_t)request[0] < sizeof MISDEEDS / sizeof *MISDEEDS) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        // The server logs the last lines of a process that ends.
        dprintf(2, "misdeed at %ld.%09ld\n", (long)now.tv_sec, now.tv_nsec);
        request[0] = MISDEEDS[request[0]].run(request[1]);
    }
    return real_run(session, options, names, inputs, count, output_names, outputs, results);
}

// A child with more memory than its worker may have, while the worker loads.
static void grow_in_child(void) {
    if (fork() == 0) { take_at_once(GROWTH); pause_for(10000); _exit(0); }
    pause_for(10000);
}

static const void *get_api(uint32_t version) {
    // Of a worker that is started again while the file is there.
    if (!access(ENGINE "/hang", F_OK)) pause();
    if (!access(ENGINE "/crash", F_OK)) abort();
    if (!access(ENGINE "/grow", F_OK)) grow_in_child();
    void **table = (void **)real->get_api(version);
    if (!table) return NULL;
    if (table[RUN] != run) {
        // Replaced in place: its length depends on the version. The loader has made it read-only.
        uintptr_t page = (uintptr_t)&table[RUN] & ~4095UL;
        mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
        real_run = (Run)table[RUN];
        table[RUN] = run;
        functions = table;
    }
    return table;
}

static const char *get_version(void) { return real->get_version(); }

const ApiBase *OrtGetApiBase(void) {
    static const ApiBase base = {get_api, get_version};
    void *library = dlopen(REAL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return NULL; }
    real = ((const ApiBase *(*)(void))dlsym(library, "OrtGetApiBase"))();
    return &base;
}
