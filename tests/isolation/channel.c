// Noise and lies in what the server reads from a worker: shared memory, control socket, standard error.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "misdeeds.h"

static char *channel;
static long channel_size;

static long find_channel(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:") && sscanf(line, "%lx-%lx", &from, &to) == 2 && (long)(to - from) > 1L << 30)
            channel = (char *)from, channel_size = to - from;
    return maps ? fclose(maps), channel ? 0 : ENOENT : errno;
}

enum { ANSWERED_SLOTS = 128, HEADERS = 4096, HEADER = 128, SLOTS = 512, AREAS = HEADERS + SLOTS * HEADER, RUNNING = 1, ANSWERED = 3 };

long fill_channel(long byte) {
    long lack = find_channel();
    if (lack) return lack;
    memset(channel, byte, AREAS);
    return 0;
}

static int channel_file(void) {
    char path[64], target[64] = "";
    for (int file = 0; file < 64; file++) {
        sprintf(path, "/proc/self/fd/%d", file);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:gpux")) return file;
    }
    return -1;
}

// Memory that is not mapped: reserved, and written.
long reserve_channel(long mebibytes) {
    long result = fallocate(channel_file(), 0, AREAS, mebibytes * MEBIBYTE) < 0 ? errno : 0;
    pause_for(1000);
    return result;
}

long write_channel(long mebibytes) {
    static char block[MEBIBYTE];
    for (long n = 0; n < mebibytes; n++)
        if (pwrite(channel_file(), block, MEBIBYTE, (1L << 32) + n * MEBIBYTE) < 0) return errno;
    pause_for(1000);
    return 0;
}

// Noise in everything that the server reads, while it reads.
long scribble_on_channel(long milliseconds) {
    long lack = find_channel();
    if (lack) return lack;
    uint64_t noise = 88172645463325252ULL;
    for (long n = 0; n < milliseconds; n++, pause_for(1)) {
        for (long at = HEADERS; at < AREAS; at += 8) {
            noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
            *(volatile uint64_t *)(channel + at) = at % HEADER == 0 ? noise % 5 : noise;
        }
        memcpy(channel + AREAS + (channel_size - AREAS) / (2 * SLOTS), &noise, 8);
    }
    return 0;
}

// Calls `act` with each event of this process; one is the server's.
static void with_events(void (*act)(int file)) {
    char path[64], target[64] = "";
    for (int file = 0; file < 64; file++) {
        sprintf(path, "/proc/self/fd/%d", file);
        memset(target, 0, sizeof target);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "[eventfd]")) act(file);
    }
}

static void ring(int file) { uint64_t one = 1; write(file, &one, 8); }

// Says that every slot is answered, and rings for it, as fast as it can.
long ring_in_vain(long milliseconds) {
    long lack = find_channel();
    if (lack) return lack;
    struct timespec now, begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        memset(channel + ANSWERED_SLOTS, 0xFF, SLOTS / 8);
        with_events(ring);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < milliseconds);
    return 0;
}

// A full counter, whose descriptor blocks.
static void fill(int file) {
    uint64_t most = UINT64_MAX - 1;
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_NONBLOCK);
    for (uint64_t number = most; number; number /= 2) write(file, &number, 8);
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
}

long block_event(long amount) { with_events(fill); return 0; }

// Answers each running request with what `write_answer` writes; it returns the end.
static long forge(char *(*write_answer)(char *at, long size), long size) {
    long lack = find_channel();
    if (lack) return lack;
    long area = (channel_size - AREAS) / (2 * SLOTS);
    for (int slot = 0; slot < SLOTS; slot++) {
        char *header = channel + HEADERS + slot * HEADER, *begin = channel + AREAS + (2 * slot + 1) * area;
        if (*(volatile uint32_t *)header != RUNNING) continue;
        *(volatile uint64_t *)(header + 16) = write_answer(begin, size) - begin;
        *(volatile uint32_t *)header = ANSWERED;
        syscall(SYS_futex, header, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    memset(channel + ANSWERED_SLOTS, 0xFF, SLOTS / 8);
    with_events(ring);
    pause_for(5000);
    return 0;
}

static char *put(char *at, uint64_t number, int bytes) { return (char *)memcpy(at, &number, bytes) + bytes; }

// No steps, calls or trace; then an error, or this number of values.
static char *begin_answer(char *at, int is_error, uint32_t values) {
    at = put(put(put(put(at, is_error, 1), 0, 4), 0, 8), 0, 8);
    return is_error ? at : put(at, values, 4);
}

// A text of zeros, each six characters of JSON; its pages take no memory here.
static char *zeros(char *at, long size) {
    at = begin_answer(at, 0, 1);
    at = memcpy(put(at, 6, 8), "result", 6) + 6;
    return put(put(at, 1, 1), size, 8) + size;   // a text
}

// As many empty texts as fit: seventeen bytes become a value and its name.
static char *tiny_values(char *at, long size) {
    long count = size / 17;
    at = begin_answer(at, 0, count);
    for (long n = 0; n < count; n++) at = put(put(put(at, 0, 8), 1, 1), 0, 8);
    return at;
}

// A tensor of empty strings: eight bytes become 24. Its zeros take no memory here.
static char *strings(char *at, long size) {
    at = begin_answer(at, 0, 1);
    at = memcpy(put(at, 6, 8), "result", 6) + 6;
    at = put(put(put(at, 0, 1), 13, 1), 1, 1);   // a tensor, of strings, with one axis
    at = put(put(at, size / 8, 8), 0, 5);        // its size, no metadata
    return at + size;
}

// An error with control characters and as many empty lines of a log as fit: three bytes become a `String` each.
static char *error(char *at, long size) {
    at = begin_answer(at, 1, 0);
    char *begin = at;
    at += 8;
    at += sprintf(at, "{\"Step\":{\"number\":1,\"name\":\"model\",\"failure\":"
                      "{\"Failed\":\"\\u001b[2J\\u0007\\n\"},\"log\":[\"\"");
    for (char *end = begin + size; at < end; at += 3) memcpy(at, ",\"\"", 3);
    at += sprintf(at, "]}}");
    put(begin, at - begin - 8, 8);
    return at;
}

long forge_answer(long mebibytes) { return forge(zeros, mebibytes * MEBIBYTE); }
long forge_values(long mebibytes) { return forge(tiny_values, mebibytes * MEBIBYTE); }
long forge_strings(long mebibytes) { return forge(strings, mebibytes * MEBIBYTE); }
long forge_error(long mebibytes) { return forge(error, mebibytes * MEBIBYTE); }

static int control_socket(void) {
    struct stat found;
    for (int file = 0; file < 64; file++) if (!fstat(file, &found) && S_ISSOCK(found.st_mode)) return file;
    return -1;
}

long garbage_to_control(long amount) { write(control_socket(), "}{\n", 3); pause_for(500); return 0; }

// Numbers of models as fast as the server reads them, each with sizes of batches that never occurred.
long flood_control(long milliseconds) {
    static char line[1 << 20];
    struct timespec now, begun;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    long size = 1;
    do {
        char *at = line + sprintf(line, "{\"Statistics\":[{\"sessions\":1,\"retired_sessions\":0,\"waiting\":0,"
                                        "\"unrounded_runs\":0,\"batch_sizes\":{\"0\":1");
        for (int n = 0; n < 20000; n++) at += sprintf(at, ",\"%ld\":9", size++);
        at += sprintf(at, "}}]}\n");
        for (char *from = line; from < at;) {
            long sent = write(control_socket(), from, at - from);
            if (sent < 0) return errno;
            from += sent;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < milliseconds);
    return 0;
}

long flood_log(long mebibytes) {
    static char block[MEBIBYTE];
    memset(block, '\a', sizeof block);
    for (long n = 0; n < mebibytes; n++) write(2, block, sizeof block);
    return 0;
}

long forge_log(long amount) { dprintf(2, "\nforged line\r\nforged\vline\n"); abort(); }

long escape_sequences(long amount) { dprintf(2, "\n\033]0;misdeed\a\033[2J spoiled \r\n"); abort(); }
