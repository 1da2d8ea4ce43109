/* The fast path: plain reads of what was judged before, answered without a step of Python.
 *
 * `fast_receive` receives notifications. A plain read by openat of an object that the tables know as judged, or of a
 * name that is not there, it answers itself, and every open of /dev/null and its kin, which hold nothing and wait for
 * nobody; any other notification it hands to its caller. It decides nothing: every
 * entry of a table was put there by executor/hot.py and its kin after the profile had allowed that read, and goes as
 * soon as one of them would judge anew. It is executor/hot.py once more, step by step, and whatever does not go as
 * expected (an errno, a lease, a full table of descriptors) is left to that one, which does it again from the start.
 *
 * What is opened for the first time is known by its folder, where both evaluators have allowed every read of a name
 * that no pattern names, or of all names below it that consist of such ones: when its own name, by the pin, is one, a
 * file has no other name, and it never was a secret. What was let pass so is told afterwards, by `fast_fresh`, for the
 * record.
 *
 * All functions but `fast_collect` and `fast_fresh` belong to the receiving thread. Nothing here is needed: without a
 * compiler at installation the same reads are answered by executor/hot.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define VERSION 4 /* kernel/fastpath.py asks for it */

#define TASKS 4096         /* one slot for each thread id modulo this; who finds none is known to Python alone */
#define JUDGED (1u << 17)  /* slots; at most half of them are used */
#define FILES (1u << 16)
#define FILES_BYTES (4u << 20) /* of the paths of known files */
#define COUNTERS 49152
#define FOLDERS 8192       /* slots; at most half of them are used, and a quarter for what lies below others */
#define FOLDERS_BYTES (1u << 20)
#define KINDS 256          /* of folders: those of one kind have the same names that are judged one by one */
#define NAMES_BYTES (256u << 10) /* of those names */
#define SECRETS 8192       /* slots; when half of them are used, folders tell nothing any more */
#define FRESH 4096         /* files that were let pass by their folder, and are not recorded yet */
#define PROCFS 64 /* mounted procfs */
#define PATH_BYTES 256
#define RESOLVER "/etc/resolv.conf" /* is read where there is none, too: executor/hostfiles.py */

#define TMPFILE_BIT 020000000 /* __O_TMPFILE; O_TMPFILE itself contains O_DIRECTORY */
#define KNOWN 037777703       /* VALID_OPEN_FLAGS of the kernel: open and openat ignore others */
#define WALK (O_DIRECTORY | O_NOFOLLOW)
#define EFFECTFUL (O_CREAT | O_TRUNC | O_ACCMODE)  /* more than a plain read */
#define LONG_WAY (TMPFILE_BIT | O_PATH | O_EXCL)
#define NOT_COUNTED UINT32_MAX
#define OURS (O_CLOEXEC | O_NOCTTY | O_NONBLOCK) /* executor/descriptors.py */
#define STATUS (O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME)

struct task {
    uint32_t tid; /* 0: free */
    uint32_t executable;
    int mem;
    int cwd; /* -1: not known, or shared with threads that change it */
    int self; /* a descriptor of the thread, by which those of its table are copied; -1: not known */
    int64_t expires;
};

struct judged {
    uint64_t device, inode;
    int64_t changed;
    uint32_t executable, generation, counter;
};

struct file {
    uint64_t hash;
    uint32_t offset, length, generation;
};

/* The folder at this path, by its kind; `deep`: what lies below it by unnamed components is of the same kind. */
struct folder {
    uint64_t hash;
    uint32_t offset, length, generation;
    uint16_t kind, deep;
};

/* Where its names are: of each its role, its length and its bytes. */
struct kind {
    uint32_t offset, size;
};

enum { WHOLE = 0, START = 1, END = 2 }; /* a name is that, begins so, ends so: kernel/fastpath.py */

/* A file that was let pass by its folder. kernel/fastpath.py reads it. */
struct fresh {
    uint64_t device, inode;
    int64_t first; /* CLOCK_REALTIME, ns */
    uint32_t executable, counter, kind, length;
    char path[PATH_BYTES];
};

struct fast {
    int listener;
    int descriptors; /* /proc/self/fd */
    uint64_t id;     /* of the notification that was handed over with a pin, and its flags */
    int flags;
    int relative;    /* whether the known working directories are those of their tasks */
    uint32_t judged_generation, judged_used, files_generation, files_used, path_bytes, procfs_count;
    uint32_t folders_generation, folders_used, folders_bytes, kinds_used, names_bytes, secrets_used;
    _Atomic uint32_t counters_used, fresh_written, fresh_taken; /* the last two go round */
    uint64_t procfs[PROCFS];
    struct folder folders[FOLDERS];
    char folder_paths[FOLDERS_BYTES];
    struct kind kinds[KINDS];
    unsigned char names[NAMES_BYTES];
    uint64_t secrets[SECRETS][2];
    struct fresh fresh[FRESH];
    struct task tasks[TASKS];
    struct judged judged[JUDGED];
    struct file files[FILES];
    char paths[FILES_BYTES];
    _Atomic uint64_t counts[COUNTERS];
    atomic_uchar dirty[COUNTERS];
};

/* What happened to a notification: answered, or somebody else's. */
enum { DONE = -1, RECEIVED = 0 };

/* -- the tables ------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdULL;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ULL;
    return value ^ value >> 33;
}

/* The entry of this key, or the free slot where it belongs. */
static struct judged *find_judged(struct fast *f, uint32_t executable, uint64_t device, uint64_t inode, int64_t changed) {
    uint32_t slot = (uint32_t)mix(inode ^ mix(device + executable) ^ (uint64_t)changed);
    for (;; slot++) {
        struct judged *entry = &f->judged[slot % JUDGED];
        if (entry->generation != f->judged_generation ||
            (entry->inode == inode && entry->device == device && entry->changed == changed &&
             entry->executable == executable))
            return entry;
    }
}

/* 0, or -1 when the table is full. */
int fast_admit(struct fast *f, uint32_t executable, uint64_t device, uint64_t inode, int64_t changed, uint32_t counter) {
    struct judged *entry = find_judged(f, executable, device, inode, changed);
    if (counter >= COUNTERS || f->judged_used >= JUDGED / 2)
        return -1;
    if (entry->generation != f->judged_generation)
        f->judged_used++;
    *entry = (struct judged){device, inode, changed, executable, f->judged_generation, counter};
    return 0;
}

static uint64_t hash_path(const char *path, size_t length) {
    uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)path[i]) * 0x100000001b3ULL;
    return mix(hash);
}

static struct file *find_file(struct fast *f, const char *path, size_t length, uint64_t hash) {
    for (uint32_t slot = (uint32_t)hash;; slot++) {
        struct file *entry = &f->files[slot % FILES];
        if (entry->generation != f->files_generation ||
            (entry->hash == hash && entry->length == length && !memcmp(f->paths + entry->offset, path, length)))
            return entry;
    }
}

static void remember_file(struct fast *f, struct file *entry, const char *path, size_t length, uint64_t hash) {
    if (f->files_used >= FILES / 2 || f->path_bytes + length > FILES_BYTES)
        return;
    memcpy(f->paths + f->path_bytes, path, length);
    *entry = (struct file){hash, f->path_bytes, (uint32_t)length, f->files_generation};
    f->path_bytes += (uint32_t)length;
    f->files_used++;
}

void fast_clear_files(struct fast *f) {
    f->files_generation++;
    f->files_used = f->path_bytes = 0;
}

static struct folder *find_folder(struct fast *f, const char *path, size_t length, uint64_t hash) {
    for (uint32_t slot = (uint32_t)hash;; slot++) {
        struct folder *entry = &f->folders[slot % FOLDERS];
        if (entry->generation != f->folders_generation ||
            (entry->hash == hash && entry->length == length &&
             !memcmp(f->folder_paths + entry->offset, path, length)))
            return entry;
    }
}

/* The slot of this object, or the free one where it belongs: no inode has the number 0. */
static uint64_t *find_secret(struct fast *f, uint64_t device, uint64_t inode) {
    for (uint32_t slot = (uint32_t)mix(inode ^ mix(device));; slot++) {
        uint64_t *entry = f->secrets[slot % SECRETS];
        if (!entry[1] || (entry[0] == device && entry[1] == inode))
            return entry;
    }
}

/* Whether a pattern names such an entry of a folder of this kind. */
static int is_named(const struct fast *f, const struct kind *kind, const char *name, size_t length) {
    const unsigned char *at = f->names + kind->offset, *end = at + kind->size;
    for (; at < end; at += 2 + at[1]) {
        size_t size = at[1];
        if (size > length || (at[0] == WHOLE && size != length))
            continue;
        if (!memcmp(at[0] == END ? name + length - size : name, at + 2, size))
            return 1;
    }
    return 0;
}

static void remember_folder(struct fast *f, struct folder *entry, const char *path, size_t length, struct folder known) {
    memcpy(f->folder_paths + f->folders_bytes, path, length);
    known.offset = f->folders_bytes;
    known.length = (uint32_t)length;
    known.generation = f->folders_generation;
    *entry = known;
    f->folders_bytes += (uint32_t)length;
    f->folders_used++;
}

/* The kind of the folder which lets this path be read by name alone; KINDS where it has to be judged. */
uint32_t fast_lets(struct fast *f, const char *path, uint32_t length) {
    const char *cut = memrchr(path, '/', length);
    if (!cut || cut == path)
        return KINDS;
    size_t above = (size_t)(cut - path), end = above;
    uint64_t hash = hash_path(path, above);
    struct folder *folder = find_folder(f, path, above, hash);
    const struct folder *known = folder;
    while (known->generation != f->folders_generation) {
        cut = memrchr(path, '/', end);
        if (!cut || cut == path)
            return KINDS;
        end = (size_t)(cut - path);
        known = find_folder(f, path, end, hash_path(path, end));
    }
    if (known != folder && !known->deep)
        return KINDS;
    const struct kind *kind = &f->kinds[known->kind];
    for (const char *name = path + end + 1, *next; name; name = next ? next + 1 : NULL) {
        size_t rest = length - (size_t)(name - path);
        next = memchr(name, '/', rest);
        if (is_named(f, kind, name, next ? (size_t)(next - name) : rest))
            return KINDS;
    }
    if (known != folder && f->folders_used < FOLDERS / 4 && above <= FOLDERS_BYTES / 2 &&
        f->folders_bytes <= FOLDERS_BYTES / 2)
        remember_folder(f, folder, path, above, (struct folder){.hash = hash, .kind = known->kind, .deep = 1});
    return known->kind;
}

/* -- one open --------------------------------------------------------------------------------------------------- */

/* Never through a magic link: /proc/self and /dev/fd are ours here, and not the caller's (P26, P90). */
static int walk(int base, const char *path, uint64_t flags, uint64_t resolve) {
    struct open_how how = {.flags = flags, .resolve = resolve | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, base, path, &how, sizeof how);
}

static int in_procfs(const struct fast *f, uint64_t device) {
    for (uint32_t i = 0; i < f->procfs_count; i++)
        if (f->procfs[i] == device)
            return 1;
    return 0;
}

/* null, zero, full, random, urandom: executor/reopening.py, Documentation/admin-guide/devices.txt */
static int is_harmless(dev_t device) {
    return major(device) == 1 && minor(device) < 16 && (1u << minor(device) & (1u << 3 | 1u << 5 | 1u << 7 | 1u << 8 | 1u << 9));
}

static int64_t changed_at(const struct stat *found) {
    return (int64_t)found->st_ctim.tv_sec * 1000000000 + found->st_ctim.tv_nsec;
}

/* 0, or the errno. A task that died meanwhile needs no answer. */
static int respond(struct fast *f, uint64_t id, int64_t value, int error) {
    struct seccomp_notif_resp response = {.id = id, .val = value, .error = -error};
    for (;;) {
        if (!ioctl(f->listener, SECCOMP_IOCTL_NOTIF_SEND, &response) || errno == ENOENT)
            return 0;
        if (errno != EINTR)
            return errno;
    }
}

/* Puts `opened` into the worker, closes ours, then answers, in this order and in the long form: hazard P72. */
static int give(struct fast *f, uint64_t id, int opened, int flags, uint32_t counter) {
    struct seccomp_notif_addfd injection = {.id = id, .srcfd = (uint32_t)opened, .newfd_flags = flags & O_CLOEXEC};
    int number = -1, error = 0;
    if (!(flags & O_NONBLOCK) && fcntl(opened, F_SETFL, flags & STATUS))
        error = errno;
    while (!error) {
        number = ioctl(f->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &injection);
        if (number >= 0)
            break;
        if (errno != EINTR) /* then nothing was installed */
            error = errno;
    }
    close(opened);
    if (error == ENOENT)
        return DONE;
    if (error || respond(f, id, number, 0))
        return RECEIVED;
    if (counter >= COUNTERS) /* NOT_COUNTED */
        return DONE;
    /* The collector takes the mark away before it reads the count: so the count comes first. */
    atomic_fetch_add_explicit(&f->counts[counter], 1, memory_order_relaxed);
    atomic_store_explicit(&f->dirty[counter], 1, memory_order_release);
    return DONE;
}

/* The name of our own descriptor below /proc/self/fd. */
static const char *number(char name[16], int descriptor) {
    char *digit = name + 15;
    *digit = 0;
    do
        *--digit = (char)('0' + descriptor % 10);
    while (descriptor /= 10);
    return digit;
}

/* Opens what is pinned, without a second walk, gives it and lets go of the pin. */
static int reopen(struct fast *f, uint64_t id, int held, int flags, uint32_t counter) {
    char name[16];
    int opened = openat(f->descriptors, number(name, held), (flags & ~(O_CREAT | O_TRUNC | O_NOFOLLOW)) | OURS);
    close(held);
    return opened < 0 ? RECEIVED : give(f, id, opened, flags, counter);
}

/* A file or directory that nobody has judged, and that `path` led to: the counter of its reads from now on where the
 * folder in which it lies lets it pass, NOT_COUNTED where it has to be judged. */
static uint32_t meet(struct fast *f, uint32_t executable, int held, const struct stat *found, const char *path) {
    static const char mark[] = " (deleted)"; /* behind the name of what was removed. proc_pid_fd(5) */
    uint32_t written = atomic_load_explicit(&f->fresh_written, memory_order_relaxed);
    uint32_t counter = atomic_load_explicit(&f->counters_used, memory_order_relaxed);
    int directory = S_ISDIR(found->st_mode);
    if ((!directory && (!S_ISREG(found->st_mode) || found->st_nlink != 1)) || !f->folders_used || f->secrets_used >= SECRETS / 2 || f->judged_used >= JUDGED / 2 ||
        counter >= COUNTERS || written - atomic_load_explicit(&f->fresh_taken, memory_order_acquire) >= FRESH ||
        find_secret(f, found->st_dev, found->st_ino)[1])
        return NOT_COUNTED;
    struct fresh *fresh = &f->fresh[written % FRESH];
    char name[16];
    ssize_t got = readlinkat(f->descriptors, number(name, held), fresh->path, PATH_BYTES);
    if (got <= 0 || got >= PATH_BYTES)
        return NOT_COUNTED;
    size_t length = (size_t)got, marked = sizeof mark - 1;
    if (length > marked && !memcmp(fresh->path + length - marked, mark, marked))
        return NOT_COUNTED;
    /* A file by a link of another name: that one is judged, too. */
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    size_t asked = strlen(last);
    if (!directory && (!asked || asked >= length || fresh->path[length - asked - 1] != '/' ||
                       memcmp(fresh->path + length - asked, last, asked)))
        return NOT_COUNTED;
    uint32_t kind = fast_lets(f, fresh->path, (uint32_t)length);
    if (kind >= KINDS)
        return NOT_COUNTED;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fresh->device = found->st_dev;
    fresh->inode = found->st_ino;
    fresh->first = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    fresh->executable = executable;
    fresh->counter = counter;
    fresh->kind = kind;
    fresh->length = (uint32_t)length;
    atomic_store_explicit(&f->counters_used, counter + 1, memory_order_release);
    atomic_store_explicit(&f->fresh_written, written + 1, memory_order_release);
    fast_admit(f, executable, found->st_dev, found->st_ino, changed_at(found), counter);
    return counter;
}

static int serve_from(struct fast *f, const struct seccomp_notif *n, int base, int *pin, const char *path);

/* DONE, or RECEIVED: the long way. `pin` gets a pinned object that the tables do not know; `path` the path, once read.
 * `everywhere`: a path may also begin at any directory of which the caller has a descriptor. */
static int serve(struct fast *f, const struct seccomp_notif *n, int everywhere, int *pin, char path[PATH_BYTES]) {
    struct timespec now;
    int flags = (int)n->data.args[2] & KNOWN;
    const struct task *task = &f->tasks[n->pid % TASKS];

    if ((flags & LONG_WAY) || task->tid != n->pid || !n->pid)
        return RECEIVED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec >= task->expires)
        return RECEIVED;
    ssize_t got = pread(task->mem, path, PATH_BYTES, (off_t)n->data.args[1]);
    size_t length = got > 0 ? strnlen(path, (size_t)got) : 0;
    if (!length || length == (size_t)got)
        return RECEIVED;

    if ((flags & EFFECTFUL) && strncmp(path, "/dev/", 5))
        return RECEIVED;
    if (path[0] == '/')
        return serve_from(f, n, AT_FDCWD, pin, path);
    if ((int)n->data.args[0] == AT_FDCWD)
        return task->cwd < 0 || !f->relative ? RECEIVED : serve_from(f, n, task->cwd, pin, path);
    if (!everywhere || task->self < 0)
        return RECEIVED;
    int base = (int)syscall(SYS_pidfd_getfd, task->self, (int)n->data.args[0], 0);
    if (base < 0)
        return RECEIVED;
    int answer = serve_from(f, n, base, pin, path);
    close(base);
    return answer;
}

/* The same of a path from `base`, AT_FDCWD where it is absolute. */
static int serve_from(struct fast *f, const struct seccomp_notif *n, int base, int *pin, const char *path) {
    struct stat found;
    int flags = (int)n->data.args[2] & KNOWN;
    const struct task *task = &f->tasks[n->pid % TASKS];
    struct file *file = NULL;
    size_t length = strlen(path);
    uint64_t hash = 0;
    if (base == AT_FDCWD) {
        hash = hash_path(path, length);
        file = find_file(f, path, length, hash);
        if (file->generation == f->files_generation && !(flags & EFFECTFUL)) {
            /* It leads to a file: no open for reading has an effect. */
            int opened = walk(AT_FDCWD, path, (uint64_t)(flags | OURS), 0);
            if (opened >= 0) {
                if (!fstat(opened, &found)) {
                    const struct judged *entry =
                        find_judged(f, task->executable, found.st_dev, found.st_ino, changed_at(&found));
                    if (entry->generation == f->judged_generation)
                        return give(f, n->id, opened, flags, entry->counter);
                }
                close(opened);
            }
            file->length = 0; /* it may be anything by now: forgotten, and pinned first */
            file = NULL;
        }
    }

    int held = walk(base, path, (uint64_t)(O_PATH | O_CLOEXEC | (flags & WALK)), 0);
    if (held < 0) {
        /* Not there, by a walk that met no link and no procfs: then it is not there for the worker either. */
        if (errno != ENOENT || (flags & EFFECTFUL) || strstr(path, "proc") || !strcmp(path, RESOLVER))
            return RECEIVED;
        held = walk(base, path, O_PATH | O_CLOEXEC, RESOLVE_NO_SYMLINKS);
        if (held >= 0 || errno != ENOENT) {
            if (held >= 0)
                close(held);
            return RECEIVED;
        }
        if (base >= 0 && (fstat(base, &found) || in_procfs(f, found.st_dev)))
            return RECEIVED;
        return respond(f, n->id, 0, ENOENT) ? RECEIVED : DONE;
    }
    if (fstat(held, &found) || in_procfs(f, found.st_dev)) {
        close(held);
        return RECEIVED;
    }
    if (S_ISCHR(found.st_mode) && is_harmless(found.st_rdev) && !(flags & O_DIRECTORY))
        return reopen(f, n->id, held, flags, NOT_COUNTED);
    if (flags & EFFECTFUL) {
        close(held);
        return RECEIVED;
    }
    const struct judged *entry = find_judged(f, task->executable, found.st_dev, found.st_ino, changed_at(&found));
    if (entry->generation != f->judged_generation) {
        uint32_t counter = meet(f, task->executable, held, &found, path);
        if (counter != NOT_COUNTED)
            return reopen(f, n->id, held, flags, counter);
        f->id = n->id;
        f->flags = flags;
        *pin = held;
        return RECEIVED;
    }
    if (file && file->generation != f->files_generation && S_ISREG(found.st_mode))
        remember_file(f, file, path, length, hash);
    return reopen(f, n->id, held, flags, entry->counter);
}

/* -- what Python calls ------------------------------------------------------------------------------------------ */

int fast_version(void) { return VERSION; }

/* NULL without memory. `procfs` are the devices of every mounted procfs. */
struct fast *fast_new(int listener, int descriptors, const uint64_t *procfs, uint32_t count) {
    if (count > PROCFS)
        return NULL;
    struct fast *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->listener = listener;
    f->descriptors = descriptors;
    f->relative = 1;
    f->judged_generation = f->files_generation = f->folders_generation = 1;
    memcpy(f->procfs, procfs, count * sizeof *procfs);
    f->procfs_count = count;
    return f;
}

void fast_free(struct fast *f) { free(f); }

/* Waits for a notification that is not for us: RECEIVED, or the errno of the kernel. Without `enabled` none is; with 1
 * those are whose path begins at a directory other than the caller's own, by a descriptor.
 * `pin` is the object of a plain read that is not judged yet, pinned and the caller's to close, or -1; `path`, of
 * PATH_BYTES, is then the path that led there: the worker's memory may say another by now (P1). */
int fast_receive(struct fast *f, int enabled, struct seccomp_notif *n, int *pin, char *path) {
    *pin = -1;
    for (;;) {
        memset(n, 0, sizeof *n); /* the kernel refuses a dirty buffer with EINVAL (P4) */
        if (ioctl(f->listener, SECCOMP_IOCTL_NOTIF_RECV, n))
            return errno;
        if (!enabled || n->data.nr != SYS_openat || serve(f, n, enabled > 1, pin, path) == RECEIVED)
            return RECEIVED;
    }
}

/* The open that was last handed over with a pin may go on: DONE, or RECEIVED when the long way must do it from the start.
 * The pin is closed in any case. */
int fast_give(struct fast *f, int pin, uint32_t counter) {
    return reopen(f, f->id, pin, f->flags, counter);
}

/* The worker's thread `tid`: its memory, its program, until when (CLOCK_MONOTONIC, ns) that is so. */
void fast_task(struct fast *f, uint32_t tid, uint32_t executable, int mem, int64_t expires) {
    f->tasks[tid % TASKS] = (struct task){tid, executable, mem, -1, -1, expires};
}

/* Called before its descriptors are closed. */
void fast_forget(struct fast *f, uint32_t tid) {
    if (f->tasks[tid % TASKS].tid == tid)
        f->tasks[tid % TASKS].tid = 0;
}

/* The working directory of one thread; -1: not known any more. */
void fast_directory(struct fast *f, uint32_t tid, int cwd) {
    if (f->tasks[tid % TASKS].tid == tid)
        f->tasks[tid % TASKS].cwd = cwd;
}

/* A descriptor of the thread (pidfd_open), by which its own are copied. */
void fast_self(struct fast *f, uint32_t tid, int self) {
    if (f->tasks[tid % TASKS].tid == tid)
        f->tasks[tid % TASKS].self = self;
}

void fast_relative(struct fast *f, int relative) { f->relative = relative; }

void fast_clear(struct fast *f) {
    f->judged_generation++;
    f->judged_used = 0;
}

/* A counter that nothing has yet; COUNTERS when there is none any more. */
uint32_t fast_counter(struct fast *f) {
    uint32_t used = atomic_load_explicit(&f->counters_used, memory_order_relaxed);
    if (used < COUNTERS)
        atomic_store_explicit(&f->counters_used, used + 1, memory_order_release);
    return used;
}

/* All counters are free again: nothing that is admitted may have one, and all of them must have been collected. */
void fast_restart(struct fast *f) { atomic_store_explicit(&f->counters_used, 0, memory_order_release); }

/* A new kind of folders, by its names: its number, KINDS when there is no room. */
uint32_t fast_kind(struct fast *f, const unsigned char *names, uint32_t size) {
    if (f->kinds_used >= KINDS || size > NAMES_BYTES - f->names_bytes)
        return KINDS;
    memcpy(f->names + f->names_bytes, names, size);
    f->kinds[f->kinds_used] = (struct kind){f->names_bytes, size};
    f->names_bytes += size;
    return f->kinds_used++;
}

/* What lies in this folder, and below it where it is `deep`, is let pass by its kind. 0, or -1 when the table is full. */
int fast_folder(struct fast *f, const char *path, uint32_t length, uint32_t kind, int deep) {
    uint64_t hash = hash_path(path, length);
    struct folder *entry = find_folder(f, path, length, hash);
    if (entry->generation == f->folders_generation)
        return 0;
    if (kind >= f->kinds_used || f->folders_used >= FOLDERS / 2 || length > FOLDERS_BYTES - f->folders_bytes)
        return -1;
    remember_folder(f, entry, path, length, (struct folder){.hash = hash, .kind = (uint16_t)kind, .deep = deep != 0});
    return 0;
}

void fast_clear_folders(struct fast *f) {
    f->folders_generation++;
    f->folders_used = f->folders_bytes = 0;
}

/* This object is read as a view: its folder tells nothing of it. */
void fast_secret(struct fast *f, uint64_t device, uint64_t inode) {
    uint64_t *entry = find_secret(f, device, inode);
    if (entry[1] || f->secrets_used >= SECRETS / 2)
        return;
    entry[0] = device;
    entry[1] = inode;
    f->secrets_used++;
}

/* How many files were let pass by their folder and wait for `fast_fresh`. Any thread. */
uint32_t fast_waiting(struct fast *f) {
    return atomic_load_explicit(&f->fresh_written, memory_order_acquire) -
           atomic_load_explicit(&f->fresh_taken, memory_order_relaxed);
}

/* The first `room` of them: how many. Any thread, one at a time. */
uint32_t fast_fresh(struct fast *f, struct fresh *into, uint32_t room) {
    uint32_t taken = atomic_load_explicit(&f->fresh_taken, memory_order_relaxed), waiting = fast_waiting(f), i;
    for (i = 0; i < waiting && i < room; i++)
        into[i] = f->fresh[(taken + i) % FRESH];
    atomic_store_explicit(&f->fresh_taken, taken + i, memory_order_release);
    return i;
}

/* Which counters grew since the last call, and by how much: how many. Any thread, one at a time. Who is counted was
 * told by `fast_fresh` before, or can be by now. */
uint32_t fast_collect(struct fast *f, uint32_t *counters, uint64_t *growth) {
    uint32_t found = 0, used = atomic_load_explicit(&f->counters_used, memory_order_acquire);
    for (uint32_t i = 0; i < used; i++) {
        if (!atomic_load_explicit(&f->dirty[i], memory_order_relaxed))
            continue;
        atomic_exchange_explicit(&f->dirty[i], 0, memory_order_acquire);
        counters[found] = i;
        growth[found++] = atomic_exchange_explicit(&f->counts[i], 0, memory_order_relaxed);
    }
    return found;
}
