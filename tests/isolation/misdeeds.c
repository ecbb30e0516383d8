// Faults of native code, and attempts to reach what belongs to others.
// The build defines FOLDER and other paths, and PORT: a confined process has no environment.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "misdeeds.h"

// The error number of a call that failed, 0 of one that did not.
static long refusal(long result) { return result < 0 ? errno : 0; }

// ---- faults

long segfault(long amount) { return *(volatile long *)8; }
long aborted(long amount) { abort(); }
long illegal_instruction(long amount) { __builtin_trap(); }
long arithmetic_error(long amount) { volatile int least = INT_MIN, minus_one = -1; return least / minus_one; }
long exit_with(long status) { exit(status); }
long kill_itself(long signal) { raise(signal); pause_for(300); return 0; }
long endless_loop(long amount) { for (volatile long n = 0;; n++) { } }

long deaf_endless_loop(long amount) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int signal = 1; signal < NSIG; signal++) sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    return endless_loop(0);
}

long truncated_mapping(long amount) {
    char path[4096];
    snprintf(path, sizeof path, "%s/weights", getenv("TMPDIR"));
    int file = open(path, O_CREAT | O_RDWR, 0600);
    ftruncate(file, 1 << 16);
    volatile char *bytes = mmap(NULL, 1 << 16, PROT_READ, MAP_SHARED, file, 0);
    ftruncate(file, 0);
    return bytes[1 << 15];
}

long stack_overflow(long depth) {
    volatile char frame[4096];
    frame[depth % 4096] = 1;
    return stack_overflow(depth + 1) + frame[0];
}

long cpp_exception(long amount) {
    void *library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
    void *(*allocate)(size_t) = library ? dlsym(library, "__cxa_allocate_exception") : NULL;
    void (*throw)(void *, void *, void *) = library ? dlsym(library, "__cxa_throw") : NULL;
    if (!allocate || !throw) abort();
    throw(allocate(4), dlsym(library, "_ZTIi"), NULL);
    return 0;
}

long double_free(long amount) {
    char *volatile bytes = malloc(100000);
    free(bytes);
    free(bytes);
    return 0;
}

long heap_overflow(long amount) {
    char *volatile blocks[64];
    for (int n = 0; n < 64; n++) blocks[n] = malloc(2000);
    for (int n = 0; n < 64; n++) for (volatile char *at = blocks[n]; at < blocks[n] + 2400; at++) *at = 0x41;
    for (int n = 0; n < 64; n++) free(blocks[n]);
    free(malloc(100000));
    return 0;
}

static void *crash_soon(void *nothing) { pause_for(200); return (void *)segfault(0); }

long crash_after_answer(long amount) {
    pthread_t thread;
    return pthread_create(&thread, NULL, crash_soon, NULL);
}

long close_descriptors(long amount) { for (int file = 0; file < 1024; file++) close(file); pause_for(500); return 0; }

// ---- memory

static long touch(char *bytes, long size) {
    if (bytes == MAP_FAILED) return errno;
    for (long at = 0; at < size; at += 4096) ((volatile char *)bytes)[at] = 1;
    return 0;
}

static long take(long size) {
    return touch(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), size);
}

long take_at_once(long mebibytes) { long result = take(mebibytes * MEBIBYTE); pause_for(1000); return result; }

long take_slowly(long mebibytes) {
    long result = 0;
    for (long taken = 0; taken < mebibytes && !result; taken += 32) { result = take(32 * MEBIBYTE); pause_for(20); }
    return result;
}

// A file in memory that is not mapped: no process's own memory.
long take_in_file(long mebibytes) {
    static char block[MEBIBYTE];
    int file = memfd_create("weights", 0);
    if (file < 0) return errno;
    for (long n = 0; n < mebibytes; n++) if (write(file, block, MEBIBYTE) < 0) return errno;
    pause_for(1000);
    return 0;
}

// Pages that stay when they are not mapped any more.
static long share(int file, int flags, long mebibytes) {
    for (long n = 0; n < mebibytes; n += 16) {
        char *bytes = mmap(NULL, 16 * MEBIBYTE, PROT_READ | PROT_WRITE, MAP_SHARED | flags, file, 0);
        long lack = touch(bytes, 16 * MEBIBYTE);
        if (lack) return lack;
        madvise(bytes, 16 * MEBIBYTE, MADV_DONTNEED);
    }
    pause_for(1000);
    return 0;
}

long take_shared(long mebibytes) { return share(-1, MAP_ANONYMOUS, mebibytes); }

long take_in_device(long mebibytes) {
    int file = open("/dev/zero", O_RDWR);
    return file < 0 ? errno : share(file, 0, mebibytes);
}

// Tables of pages that are given back at once.
long take_in_page_tables(long mebibytes) {
    for (long n = 0; n < mebibytes * 256; n += 1 << 19) {
        char *bytes = mmap(NULL, 1L << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (bytes == MAP_FAILED) return errno;
        for (long at = 0; at < 1L << 40; at += 1L << 21) ((volatile char *)bytes)[at];
    }
    pause_for(1000);
    return 0;
}

long take_in_sockets(long mebibytes) {
    static char block[MEBIBYTE];
    for (long taken = 0; taken < mebibytes * MEBIBYTE;) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0) return errno;
        for (long sent; (sent = write(pair[0], block, 1 << 16)) > 0;) taken += sent;
    }
    pause_for(1000);
    return 0;
}

long pass_descriptors(long amount) {
    struct msghdr message = {0};
    return refusal(sendmsg(0, &message, 0));
}

// In eight processes, of which none has much.
long take_in_children(long mebibytes) {
    int status, killed = 0;
    for (int n = 0; n < 8; n++) {
        pid_t child = fork();
        if (child < 0) return errno;
        if (child == 0) { take(mebibytes / 8 * MEBIBYTE); pause_for(2500); _exit(0); }
    }
    while (wait(&status) > 0) killed += WIFSIGNALED(status);
    return killed ? ENOMEM : 0;
}

// ---- files

// What changes files that can only be read, by their descriptors.
long change_open_mode(long amount) { return refusal(fchmod(open(OWN_MODEL, O_RDONLY), 0)); }
long change_open_owner(long amount) { return refusal(fchown(open(OWN_MODEL, O_RDONLY), 0, 0)); }
long change_open_times(long amount) { return refusal(futimens(open(OWN_MODEL, O_RDONLY), NULL)); }

long change_open_attributes(long amount) {
    return refusal(fsetxattr(open(OWN_MODEL, O_RDONLY), "user.misdeed", "x", 1, 0));
}

static long opens(const char *path, int flags) {
    int file = open(path, flags, 0600);
    if (file < 0) return errno;
    close(file);
    return 0;
}

long write_outside(long amount) { return opens(FOLDER "/written", O_CREAT | O_WRONLY); }
long read_secret(long amount) { return opens(SECRET, O_RDONLY); }
long delete_secret(long amount) { return refusal(unlink(FOLDER "/deletable")); }
long change_mode(long amount) { return refusal(chmod(SECRET, 0666)); }
long read_other_model(long amount) { return opens(OTHER_MODEL, O_RDONLY); }
long overwrite_own_model(long amount) { return opens(OWN_MODEL, O_RDWR); }
long read_cache_key(long amount) { return opens(CACHE_KEY, O_RDONLY); }

long write_cache(long amount) {
    long result = opens(CACHE "/misdeed", O_CREAT | O_WRONLY);
    unlink(CACHE "/misdeed");
    return result;
}

long read_other_entry(long amount) { return opens(OTHER_ENTRY, O_RDONLY); }

long list_cache(long amount) { return opens(CACHE "/verified", O_RDONLY | O_DIRECTORY); }

// What the next load, and those of others, find in the cache that this pipeline may write.
long sparse_cache_file(long gibibytes) {
    int file = open(OWN_CACHE "/sparse", O_CREAT | O_RDWR, 0600);
    return file < 0 ? errno : refusal(ftruncate(file, gibibytes << 30));
}

long many_cache_files(long count) {
    char path[4096];
    for (long n = 0; n < count; n++) {
        snprintf(path, sizeof path, "%s/verified/%ld", OWN_CACHE, n);
        int file = open(path, O_CREAT | O_WRONLY, 0600);
        if (file < 0) return errno;
        close(file);
    }
    return 0;
}

static long pipes_in(const char *folder) {
    char path[4096];
    struct dirent *entry;
    DIR *found = opendir(folder);
    if (!found) return errno;
    while ((entry = readdir(found))) {
        if (entry->d_type != DT_REG) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) || mkfifo(path, 0600)) return errno;
    }
    closedir(found);
    return 0;
}

long pipes_in_cache(long amount) { return pipes_in(OWN_CACHE) | pipes_in(OWN_CACHE "/verified"); }

// The mode of a file that may be read, without its path.
long change_mode_of_engine(long amount) {
    struct stat status;
    int file = open(REAL_LIBRARY, O_RDONLY);
    if (file < 0 || fstat(file, &status)) return errno;
    long result = refusal(fchmod(file, status.st_mode));
    close(file);
    return result;
}

static long of_process(long process, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", process, name);
    return opens(path, flags);
}

long read_server_environment(long server) { return of_process(server, "environ", O_RDONLY); }
long open_server_memory(long server) { return of_process(server, "mem", O_RDWR); }

long fill_disk(long mebibytes) {
    static char block[MEBIBYTE];
    int file = open(FOLDER "/fill", O_CREAT | O_WRONLY, 0600);
    if (file < 0) return errno;
    long result = 0;
    for (long n = 0; n < mebibytes && !result; n++) result = refusal(write(file, block, MEBIBYTE));
    unlink(FOLDER "/fill");
    close(file);
    return result;
}

long open_many_files(long count) {
    long result = 0;
    int first = open("/dev/null", O_RDONLY), last = first;
    for (long n = 1; n < count && !result; n++) {
        int file = open("/dev/null", O_RDONLY);
        if (file < 0) result = errno;
        else last = file;
    }
    close_range(first, last, 0);
    return result;
}

// ---- network

static struct sockaddr_in listener(void) {
    struct in_addr host = {htonl(INADDR_LOOPBACK)};
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr = host};
}

long connect_tcp(long amount) {
    struct sockaddr_in address = listener();
    int file = socket(AF_INET, SOCK_STREAM, 0);
    return file < 0 ? errno : refusal(connect(file, (void *)&address, sizeof address));
}

long send_udp(long amount) {
    struct sockaddr_in address = listener();
    int file = socket(AF_INET, SOCK_DGRAM, 0);
    return file < 0 ? errno : refusal(sendto(file, "x", 1, 0, (void *)&address, sizeof address));
}

long listen_tcp(long amount) {
    int file = socket(AF_INET, SOCK_STREAM, 0);
    return file < 0 ? errno : refusal(listen(file, 1));
}

long connect_unix(long amount) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = FOLDER "/listener"};
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    return file < 0 ? errno : refusal(connect(file, (void *)&address, sizeof address));
}

// ---- other processes, and the system

long run_shell(long amount) {
    extern char **environ;
    char *arguments[] = {"sh", "-c", "exit 7", NULL};
    pid_t child;
    int status = 0, error = posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ);
    if (!error) waitpid(child, &status, 0);
    return error ? error : WEXITSTATUS(status) == 7 ? 0 : EPERM;
}

// In a namespace of its own, this process may have a thread with the number of another process.
static int is_own(long process) { return !syscall(SYS_tgkill, getpid(), process, 0); }

static long kill_other(long process) { return is_own(process) ? ESRCH : refusal(kill(process, SIGKILL)); }
long kill_server(long server) { return kill_other(server); }
long kill_neighbour(long process) { return kill_other(process); }
long trace_server(long server) { return refusal(ptrace(PTRACE_SEIZE, server, NULL, NULL)); }

// Its thread goes back to all processors that it may use.
long pin_server(long server) {
    if (is_own(server)) return ESRCH;
    cpu_set_t before, first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    if (sched_getaffinity(server, sizeof before, &before)) return errno;
    long result = refusal(sched_setaffinity(server, sizeof first, &first));
    if (!result) sched_setaffinity(server, sizeof before, &before);
    return result;
}

long slow_server(long server) { return is_own(server) ? ESRCH : refusal(setpriority(PRIO_PROCESS, server, 1)); }

long read_server_memory(long server) {
    char byte;
    struct iovec ours = {&byte, 1}, theirs = {(void *)8, 1};
    process_vm_readv(server, &ours, 1, &theirs, 1, 0);
    // The address is bad: only a refusal comes before that is noticed.
    return errno == EFAULT ? 0 : errno;
}

long read_server_limits(long server) {
    struct rlimit limit;
    return refusal(prlimit(server, RLIMIT_NOFILE, NULL, &limit));
}

long raise_limits(long amount) {
    struct rlimit limit, higher;
    getrlimit(RLIMIT_NOFILE, &limit);
    higher = (struct rlimit){limit.rlim_max + 1, limit.rlim_max + 1};
    long result = refusal(setrlimit(RLIMIT_NOFILE, &higher));
    if (!result) setrlimit(RLIMIT_NOFILE, &limit);
    return result;
}

long real_time_priority(long amount) {
    struct sched_param first = {.sched_priority = 1}, none = {0};
    long result = refusal(sched_setscheduler(0, SCHED_FIFO, &first));
    sched_setscheduler(0, SCHED_OTHER, &none);
    return result;
}

long outlive_server(long amount) { return refusal(prctl(PR_SET_PDEATHSIG, 0)); }

// In a child, since it would be this process's otherwise.
long new_namespace(long amount) {
    return refusal(unshare(CLONE_NEWNS));
}

long fork_bomb(long count) {
    long result = 0;
    for (long n = 0; n < count && !result; n++) {
        pid_t child = fork();
        if (child == 0) { prctl(PR_SET_NAME, "misdeed-fork"); pause_for(20000); _exit(0); }
        result = refusal(child);
    }
    return result;
}

// A process of a session of its own, which the end of the worker's group does not end.
long leave_daemon(long amount) {
    pid_t child = fork();
    if (child == 0) { setsid(); prctl(PR_SET_NAME, "misdeed-daemon"); if (fork() == 0) pause_for(20000); _exit(0); }
    return refusal(child);
}

static void *idle(void *nothing) { pause_for(3000); return NULL; }

static void *spin(void *nothing) { for (time_t end = time(NULL) + 3; time(NULL) < end;) { } return NULL; }

static long start_threads(void *(*run)(void *), long count) {
    long result = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_t thread;
    for (long n = 0; n < count && !result; n++) result = pthread_create(&thread, &small, run, NULL);
    return result;
}

long many_threads(long count) { return start_threads(idle, count); }
long busy_threads(long count) { long result = start_threads(spin, count); pause_for(2500); return result; }
