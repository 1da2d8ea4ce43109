/* Reference supervisor: what seccomp user notification costs in C, as the yardstick of scripts/bench.
 *
 *     supervisor MODE -- COMMAND [ARG...]
 *
 * It performs calls on behalf of the command with one thread and one flat loop, in the same steps as the engine, and
 * decides nothing. IT PROTECTS NOTHING: whatever it does not perform (devices, FIFOs, procfs, O_PATH, magic links, odd
 * names, unreadable memory) is answered with CONTINUE, so that programs run as they would without it.
 *
 * Steps of each mode, for absolute paths (a relative path adds one open of the caller's cwd or dirfd, and its close):
 *   read-open         open and openat that only read: RECV, pread of a cached /proc/T/mem (256 bytes), openat2(O_PATH,
 *                     RESOLVE_NO_MAGICLINKS), fstat, reopen through /proc/self/fd/N with O_NOCTTY|O_NONBLOCK,
 *                     fcntl(F_SETFL), close of the pin, ADDFD with SEND, close
 *   read-open-direct  the same calls: RECV, pread, openat2(the flags, RESOLVE_NO_MAGICLINKS), fstat, ADDFD with SEND, close
 *   effects           O_CREAT: pin of the parent, fstatat, openat(O_CREAT|O_EXCL), ADDFD, close, NOTIF_SEND (the form that
 *                     cannot cause ETXTBSY, hazard P72); rename: two pins, two fstatat, renameat; unlink and rmdir: pin,
 *                     fstatat, unlinkat; mkdir: pin, mkdirat; every other open as in read-open
 *   continue          open and openat: RECV, NOTIF_SEND with CONTINUE
 * A cached mem descriptor is dropped at the notified execve of its task (hazard P94).
 *
 * Exit status: the command's own, 128+n when signal n ended it, 125 when the supervisor failed, 126/127 as a shell's.
 * Known limits: creation uses the supervisor's own umask and ids, chroot and mount namespaces are not followed; read-open-direct
 * opens before it looks, so that the writer of a FIFO meets a reader that goes away again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Newer than the headers of some systems that can run this. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the reference supervisor knows x86_64 and aarch64"
#endif

#define FAILURE 125
#define MEM_SLOTS 256      /* cached /proc/T/mem descriptors, by thread id modulo this */
#define TMPFILE_BIT 020000000 /* __O_TMPFILE; O_TMPFILE itself contains O_DIRECTORY */
/* An open with any of these does more than read. */
#define NOT_PLAIN_READ (O_ACCMODE | O_CREAT | O_TRUNC | O_PATH | TMPFILE_BIT)

enum mode { READ_OPEN, READ_OPEN_DIRECT, EFFECTS, CONTINUE_ALL };

static enum mode mode;
static int listener = -1;
static dev_t procfs; /* st_dev of /proc: objects there mean something else for each reader (hazard P90) */
static struct { pid_t task; int fd; } mem_cache[MEM_SLOTS];

/* Failures: one line, status 125. */
static void die(const char *step) {
    fprintf(stderr, "supervisor: %s: %s\n", step, strerror(errno));
    exit(FAILURE);
}

/* ---- the filter ---------------------------------------------------------------------------------------------- */

static struct sock_filter program[128];
static unsigned short length;

static void emit(unsigned short code, unsigned char jt, unsigned char jf, unsigned int k) {
    program[length++] = (struct sock_filter){code, jt, jf, k};
}

/* Notify call `nr`. flags_arg >= 0: only when that argument has no bit of NOT_PLAIN_READ. */
static void notify(unsigned int nr, int flags_arg) {
    if (flags_arg < 0) {
        emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
        emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF);
        return;
    }
    emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, nr);
    /* The low word of the argument: both architectures are little-endian. */
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args) + 8 * (unsigned int)flags_arg);
    emit(BPF_JMP | BPF_JSET | BPF_K, 0, 1, NOT_PLAIN_READ);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF);
}

static void build_filter(void) {
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
    emit(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, NATIVE_ARCH);
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS);
    emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
    int only_reads = mode == READ_OPEN || mode == READ_OPEN_DIRECT;
    notify(SYS_openat, only_reads ? 2 : -1);
#ifdef SYS_open
    notify(SYS_open, only_reads ? 1 : -1);
#endif
    if (mode != CONTINUE_ALL) {
        notify(SYS_execve, -1);
        notify(SYS_execveat, -1);
    }
    if (mode == EFFECTS) {
        notify(SYS_unlinkat, -1);
        notify(SYS_mkdirat, -1);
        notify(SYS_renameat2, -1);
        notify(SYS_renameat, -1);
#ifdef SYS_rename
        notify(SYS_creat, -1);
        notify(SYS_rename, -1);
        notify(SYS_unlink, -1);
        notify(SYS_rmdir, -1);
        notify(SYS_mkdir, -1);
#endif
    }
    emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

/* Ends a notification. ENOENT (the caller died) is nobody's error. */
static void send_response(struct seccomp_notif_resp *resp) {
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, resp) == -1 && errno != ENOENT && errno != EINPROGRESS)
        die("NOTIF_SEND");
}

static void answer_continue(__u64 id) {
    struct seccomp_notif_resp resp = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    send_response(&resp);
}

/* error: 0 for success with `val`, else a positive errno. */
static void answer(__u64 id, int error, __s64 val) {
    struct seccomp_notif_resp resp = {.id = id, .error = -error, .val = error ? 0 : val};
    send_response(&resp);
}

/* Installs `fd` in the caller and closes it here. `at_once`: the call returns before our copy is closed (P72). */
static void inject(__u64 id, int fd, int flags, int at_once) {
    struct seccomp_notif_addfd addfd = {
        .id = id,
        .flags = at_once ? SECCOMP_ADDFD_FLAG_SEND : 0,
        .srcfd = (__u32)fd,
        .newfd_flags = (__u32)(flags & O_CLOEXEC),
    };
    int number = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &addfd);
    int error = number == -1 ? errno : 0;
    close(fd);
    if (error || !at_once)
        answer(id, error, number); /* EMFILE and the like are the caller's (P13) */
}

/* ---- reading the caller -------------------------------------------------------------------------------------- */

static void forget_task(pid_t task) {
    unsigned int slot = (unsigned int)task % MEM_SLOTS;
    if (mem_cache[slot].task == task) {
        close(mem_cache[slot].fd);
        mem_cache[slot].task = 0;
    }
}

/* The caller's memory, opened once a task; -1 when it cannot be opened. */
static int task_memory(pid_t task) {
    unsigned int slot = (unsigned int)task % MEM_SLOTS;
    if (mem_cache[slot].task == task)
        return mem_cache[slot].fd;
    char name[32];
    snprintf(name, sizeof name, "/proc/%d/mem", task);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -1;
    if (mem_cache[slot].task)
        close(mem_cache[slot].fd);
    mem_cache[slot].task = task;
    mem_cache[slot].fd = fd;
    return fd;
}

/* Copies the C string at `address` of the caller, at most 4,096 bytes. 0, or -1 when it cannot be had. */
static int read_path(pid_t task, __u64 address, char path[4096]) {
    ssize_t got = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        int fd = task_memory(task);
        if (fd == -1)
            return -1;
        got = pread(fd, path, 256, (off_t)address);
        if (got > 0)
            break;
        forget_task(task); /* the address space of a dead task reads as empty: its number is in use again */
    }
    if (got <= 0)
        return -1;
    if (memchr(path, 0, (size_t)got))
        return 0;
    if (got < 256)
        return -1;
    got = pread(task_memory(task), path, 4096, (off_t)address);
    return got > 0 && memchr(path, 0, (size_t)got) ? 0 : -1;
}

/* Where a relative path starts: AT_FDCWD for absolute paths, else a descriptor to close, or -1 with errno. */
static int base_of(pid_t task, int dirfd, const char *path) {
    if (path[0] == '/')
        return AT_FDCWD;
    char name[48];
    if (dirfd == AT_FDCWD)
        snprintf(name, sizeof name, "/proc/%d/cwd", task);
    else
        snprintf(name, sizeof name, "/proc/%d/fd/%d", task, dirfd);
    int fd = open(name, O_PATH | O_CLOEXEC);
    if (fd == -1 && dirfd != AT_FDCWD && errno == ENOENT)
        errno = EBADF;
    return fd;
}

static void close_base(int base) {
    if (base >= 0)
        close(base);
}

static int open_beneath(int base, const char *path, __u64 flags, __u64 open_mode) {
    struct open_how how = {.flags = flags, .mode = open_mode, .resolve = RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, base, path, &how, sizeof how);
}

/* A name as a pinned parent directory and its last component. */
struct name { int parent; const char *last; char path[4096]; };

/* 0: pinned. > 0: the errno of the pin. -1: a form that the kernel should take itself. */
static int pin_parent(pid_t task, int dirfd, __u64 address, struct name *name) {
    name->parent = -1;
    if (read_path(task, address, name->path) == -1)
        return -1;
    char *slash = strrchr(name->path, '/');
    name->last = slash ? slash + 1 : name->path;
    if (!*name->last || !strcmp(name->last, ".") || !strcmp(name->last, ".."))
        return -1;
    int base = base_of(task, dirfd, name->path);
    if (base == -1)
        return errno;
    const char *directory = ".";
    if (slash == name->path) {
        directory = "/";
    } else if (slash) {
        *slash = 0;
        directory = name->path;
    }
    name->parent = open_beneath(base, directory, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    int error = name->parent == -1 ? errno : 0;
    close_base(base);
    return error == ELOOP ? -1 : error;
}

/* ---- performing ---------------------------------------------------------------------------------------------- */

/* An open that does not create. */
static void perform_open(const struct seccomp_notif *req, int dirfd, __u64 address, int flags) {
    static char path[4096];
    pid_t task = (pid_t)req->pid;
    if ((flags & (O_PATH | TMPFILE_BIT)) || read_path(task, address, path) == -1) {
        answer_continue(req->id);
        return;
    }
    int base = base_of(task, dirfd, path);
    if (base == -1) {
        answer(req->id, errno, 0);
        return;
    }
    int direct = mode == READ_OPEN_DIRECT;
    /* openat2 refuses what it does not know; open ignores it. */
    int known = flags & (O_ACCMODE | O_APPEND | O_CLOEXEC | O_DIRECTORY | O_NOATIME | O_NOFOLLOW | O_NONBLOCK |
                         O_SYNC | O_DIRECT | O_LARGEFILE | O_TRUNC);
    int pin = open_beneath(base, path,
                           direct ? (__u64)(known | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
                                  : (__u64)(O_PATH | O_CLOEXEC | (flags & (O_NOFOLLOW | O_DIRECTORY))), 0);
    int error = pin == -1 ? errno : 0;
    close_base(base);
    struct stat st;
    if (error == ELOOP || error == ENXIO || (!error && fstat(pin, &st) == -1)) {
        if (!error)
            close(pin);
        answer_continue(req->id);
        return;
    }
    if (error) {
        answer(req->id, error, 0);
        return;
    }
    if (!(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) || st.st_dev == procfs) {
        close(pin);
        answer_continue(req->id);
        return;
    }
    if (direct) {
        /* The step list has no F_SETFL here: only directories and regular files come so far, and O_NONBLOCK means
         * nothing to them. The visible difference is F_GETFL. */
        inject(req->id, pin, flags, 1);
        return;
    }
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", pin);
    int fd = open(link, (known & ~O_NOFOLLOW) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    error = fd == -1 ? errno : 0;
    if (!error && !(flags & O_NONBLOCK))
        fcntl(fd, F_SETFL, known & (O_APPEND | O_NOATIME | O_DIRECT));
    close(pin);
    if (error)
        answer(req->id, error, 0);
    else
        inject(req->id, fd, flags, (flags & (O_ACCMODE | O_TRUNC)) == 0);
}

/* An open with O_CREAT. */
static void perform_create(const struct seccomp_notif *req, int dirfd, __u64 address, int flags, mode_t bits) {
    static struct name name;
    struct stat st;
    name.parent = -1;
    int result = (flags & (O_PATH | TMPFILE_BIT | O_DIRECTORY))
                     ? -1 : pin_parent((pid_t)req->pid, dirfd, address, &name);
    if (result == 0) {
        int exists = fstatat(name.parent, name.last, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (exists && (flags & O_EXCL)) {
            result = EEXIST;
        } else if (exists && (!S_ISREG(st.st_mode) || st.st_dev == procfs)) {
            result = -1;
        } else {
            int how = (flags & ~(O_CREAT | O_EXCL)) | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
            int fd = openat(name.parent, name.last, exists ? how : how | O_CREAT | O_EXCL, bits);
            if (fd >= 0) {
                close(name.parent);
                inject(req->id, fd, flags, 0);
                return;
            }
            /* Somebody else made or removed it in between: the kernel's own open settles that. */
            result = errno == EEXIST || errno == ENOENT || errno == ELOOP ? -1 : errno;
        }
    }
    if (name.parent >= 0)
        close(name.parent);
    if (result == -1)
        answer_continue(req->id);
    else
        answer(req->id, result, 0);
}

static void perform_rename(const struct seccomp_notif *req, int from_dir, __u64 from, int to_dir, __u64 to,
                           unsigned int flags) {
    static struct name old, new;
    struct stat st;
    pid_t task = (pid_t)req->pid;
    new.parent = -1;
    int result = pin_parent(task, from_dir, from, &old);
    if (result == 0)
        result = pin_parent(task, to_dir, to, &new);
    if (result == 0) {
        (void)!fstatat(old.parent, old.last, &st, AT_SYMLINK_NOFOLLOW);
        (void)!fstatat(new.parent, new.last, &st, AT_SYMLINK_NOFOLLOW);
        int done = flags ? renameat2(old.parent, old.last, new.parent, new.last, flags)
                         : renameat(old.parent, old.last, new.parent, new.last);
        result = done == -1 ? errno : 0;
    }
    if (old.parent >= 0)
        close(old.parent);
    if (new.parent >= 0)
        close(new.parent);
    if (result == -1)
        answer_continue(req->id);
    else
        answer(req->id, result, 0);
}

static void perform_unlink(const struct seccomp_notif *req, int dirfd, __u64 address, int flags) {
    static struct name name;
    struct stat st;
    int result = pin_parent((pid_t)req->pid, dirfd, address, &name);
    if (result == 0) {
        (void)!fstatat(name.parent, name.last, &st, AT_SYMLINK_NOFOLLOW);
        result = unlinkat(name.parent, name.last, flags) == -1 ? errno : 0;
    }
    if (name.parent >= 0)
        close(name.parent);
    if (result == -1)
        answer_continue(req->id);
    else
        answer(req->id, result, 0);
}

static void perform_mkdir(const struct seccomp_notif *req, int dirfd, __u64 address, mode_t bits) {
    static struct name name;
    int result = pin_parent((pid_t)req->pid, dirfd, address, &name);
    if (result == 0)
        result = mkdirat(name.parent, name.last, bits) == -1 ? errno : 0;
    if (name.parent >= 0)
        close(name.parent);
    if (result == -1)
        answer_continue(req->id);
    else
        answer(req->id, result, 0);
}

static void perform_any_open(const struct seccomp_notif *req, int dirfd, __u64 address, int flags, mode_t bits) {
    if (flags & O_CREAT)
        perform_create(req, dirfd, address, flags, bits);
    else
        perform_open(req, dirfd, address, flags);
}

static void handle(const struct seccomp_notif *req) {
    const __u64 *a = req->data.args;
    if (mode == CONTINUE_ALL) {
        answer_continue(req->id);
        return;
    }
    switch (req->data.nr) {
    case SYS_openat:
        perform_any_open(req, (int)a[0], a[1], (int)a[2], (mode_t)a[3]);
        return;
    case SYS_unlinkat:
        perform_unlink(req, (int)a[0], a[1], (int)a[2]);
        return;
    case SYS_mkdirat:
        perform_mkdir(req, (int)a[0], a[1], (mode_t)a[2]);
        return;
    case SYS_renameat:
        perform_rename(req, (int)a[0], a[1], (int)a[2], a[3], 0);
        return;
    case SYS_renameat2:
        perform_rename(req, (int)a[0], a[1], (int)a[2], a[3], (unsigned int)a[4]);
        return;
#ifdef SYS_open
    case SYS_open:
        perform_any_open(req, AT_FDCWD, a[0], (int)a[1], (mode_t)a[2]);
        return;
    case SYS_creat:
        perform_create(req, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
        return;
    case SYS_rename:
        perform_rename(req, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        return;
    case SYS_unlink:
        perform_unlink(req, AT_FDCWD, a[0], 0);
        return;
    case SYS_rmdir:
        perform_unlink(req, AT_FDCWD, a[0], AT_REMOVEDIR);
        return;
    case SYS_mkdir:
        perform_mkdir(req, AT_FDCWD, a[0], (mode_t)a[1]);
        return;
#endif
    default: /* execve, execveat: the address space ends here (P94) */
        forget_task((pid_t)req->pid);
        answer_continue(req->id);
    }
}

/* ---- start and loop ------------------------------------------------------------------------------------------ */

/* The child: filter on, tell its number, wait until the parent has it, exec. Never returns. */
static void run_command(char **command, int tell, int go) {
    struct sock_fprog fprog = {length, program};
    char byte;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
        die("PR_SET_NO_NEW_PRIVS");
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &fprog);
    if (fd == -1)
        die("seccomp");
    if (write(tell, &fd, sizeof fd) != sizeof fd || read(go, &byte, 1) != 1)
        _exit(FAILURE);
    execvp(command[0], command);
    int status = errno == ENOENT ? 127 : 126;
    fprintf(stderr, "supervisor: %s: %s\n", command[0], strerror(errno));
    _exit(status);
}

static void end_recv(int signo) { (void)signo; }

/* A process that sends SIGALRM once the last filtered task is gone, since RECV then blocks for ever on older kernels
 * (newer ones answer ENOENT, P95). No signal may come earlier: one that interrupts an ADDFD with SEND makes the
 * caller's open return 0 with nothing installed. Returns its process id. */
static pid_t start_watcher(void) {
    struct sigaction action = {.sa_handler = end_recv}; /* no SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    pid_t supervisor = getpid(), watcher = fork();
    if (watcher == -1)
        die("fork");
    if (watcher)
        return watcher;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pollfd poller = {.fd = listener}; /* POLLHUP is always reported */
    while (getppid() == supervisor)
        if (poll(&poller, 1, -1) > 0) {
            kill(supervisor, SIGALRM);
            usleep(20000); /* again, should the first have come just before the RECV */
        }
    _exit(0);
}

/* Until the last filtered task is gone. */
static void serve(void) {
    struct seccomp_notif req;
    for (;;) {
        memset(&req, 0, sizeof req);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &req) == 0) {
            handle(&req);
            continue;
        }
        if (errno != ENOENT && errno != EINTR)
            die("NOTIF_RECV");
        struct pollfd poller = {.fd = listener, .events = POLLIN};
        if (poll(&poller, 1, 0) > 0 && (poller.revents & POLLHUP))
            return;
    }
}

int main(int argc, char **argv) {
    static const char *const names[] = {"read-open", "read-open-direct", "effects", "continue"};
    int found = -1;
    for (int i = 0; argc > 3 && i < 4; i++)
        if (!strcmp(argv[1], names[i]))
            found = i;
    if (found < 0 || strcmp(argv[2], "--") != 0) {
        fprintf(stderr, "usage: supervisor read-open|read-open-direct|effects|continue -- COMMAND [ARG...]\n");
        return FAILURE;
    }
    mode = (enum mode)found;
    struct stat st;
    if (stat("/proc/self", &st) == -1)
        die("/proc");
    procfs = st.st_dev;
    build_filter();
    int tell[2], go[2];
    if (pipe2(tell, O_CLOEXEC) == -1 || pipe2(go, O_CLOEXEC) == -1)
        die("pipe2");
    pid_t child = fork();
    if (child == -1)
        die("fork");
    if (child == 0) {
        close(tell[0]);
        close(go[1]);
        run_command(argv + 3, tell[1], go[0]);
    }
    close(tell[1]);
    close(go[0]);
    int number, status;
    if (read(tell[0], &number, sizeof number) != sizeof number) {
        waitpid(child, &status, 0); /* the child has said why */
        return FAILURE;
    }
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    listener = pidfd == -1 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    if (listener == -1) {
        int error = errno;
        kill(child, SIGKILL);
        errno = error;
        die("pidfd_getfd of the listener");
    }
    close(pidfd);
    close(tell[0]);
    /* The flag is passed as a value. Kernels before 6.6 lack it, and answer slower. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) == -1)
        fprintf(stderr, "supervisor: no synchronous wake-up on this kernel\n");
    if (write(go[1], "x", 1) != 1)
        die("start");
    close(go[1]);
    pid_t watcher = start_watcher();
    serve();
    kill(watcher, SIGKILL);
    while (waitpid(watcher, &status, 0) == -1 && errno == EINTR)
        ;
    while (waitpid(child, &status, 0) == -1)
        if (errno != EINTR)
            die("waitpid");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
