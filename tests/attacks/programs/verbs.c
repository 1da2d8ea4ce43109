/* What is done in a cell of the matrix: each verb is a raw system call, some by doors beside the usual one. */
#define _GNU_SOURCE
#include "matrix.h"
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#define SYS_setxattrat_ 463
#define SYS_removexattrat_ 466
#define SYS_file_setattr_ 469

#define P const struct place *p
#define T const char *path
#define RESULT(call) ((call) < 0 ? -errno : 0)
#define VERB(name) static int name(P, T)
#define PLAIN(p) do { (void)path; if ((p)->at != AT_FDCWD || (p)->flags) return NONE; } while (0)
#define NAMED(p) do { (void)path; if ((p)->flags) return NONE; } while (0)

/* -- opening ------------------------------------------------------------------------------------------------------- */

static int use(long file, int reading)
{
	char byte;
	if (file < 0)
		return -errno;
	long got = reading ? read((int)file, &byte, 1) : 1;
	close((int)file);
	return got < 0 ? -errno : got ? 0 : -ENODATA;
}

static int open_by(P, int flags)
{
	if (p->flags)
		return NONE;
	return use(syscall(SYS_openat, p->at, p->path, flags | O_CLOEXEC, 0644), (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)));
}

VERB(v_read) { (void)path; return open_by(p, O_RDONLY); }
VERB(v_write) { (void)path; return open_by(p, O_WRONLY); }
VERB(v_append) { (void)path; return open_by(p, O_WRONLY | O_APPEND); }
VERB(v_both) { (void)path; return open_by(p, O_RDWR); }
VERB(v_empty) { (void)path; return open_by(p, O_WRONLY | O_TRUNC); }
VERB(v_read_empty) { (void)path; return open_by(p, O_RDONLY | O_TRUNC); }
VERB(v_over) { (void)path; return open_by(p, O_WRONLY | O_CREAT); }
VERB(v_over_empty) { (void)path; return open_by(p, O_RDWR | O_CREAT | O_TRUNC); }
VERB(v_create) { (void)path; return open_by(p, O_WRONLY | O_CREAT); }
VERB(v_create_alone) { (void)path; return open_by(p, O_RDWR | O_CREAT | O_EXCL); }

static int open2(P, int flags, unsigned long resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .mode = flags & O_CREAT ? 0644 : 0, .resolve = resolve};
	if (p->flags)
		return NONE;
	return use(syscall(SYS_openat2, p->at, p->path, &how, sizeof how), flags == O_RDONLY);
}

#define OPEN2(suffix, resolve) \
	VERB(v_read2_##suffix) { (void)path; return open2(p, O_RDONLY, resolve); } \
	VERB(v_write2_##suffix) { (void)path; return open2(p, O_WRONLY, resolve); } \
	VERB(v_create2_##suffix) { (void)path; return open2(p, O_RDWR | O_CREAT, resolve); }
OPEN2(plain, 0)
OPEN2(no_xdev, RESOLVE_NO_XDEV)
OPEN2(no_magic, RESOLVE_NO_MAGICLINKS)
OPEN2(no_links, RESOLVE_NO_SYMLINKS)
OPEN2(beneath, RESOLVE_BENEATH)
OPEN2(in_root, RESOLVE_IN_ROOT)
OPEN2(cached, RESOLVE_CACHED)
OPEN2(many, RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH)

#ifdef SYS_open
VERB(v_open_read) { PLAIN(p); return use(syscall(SYS_open, p->path, O_RDONLY), 1); }
VERB(v_open_write) { PLAIN(p); return use(syscall(SYS_open, p->path, O_WRONLY), 0); }
VERB(v_creat) { PLAIN(p); return use(syscall(SYS_creat, p->path, 0644), 0); }
#endif
VERB(v_truncate) { PLAIN(p); return RESULT(syscall(SYS_truncate, p->path, 1L)); }

VERB(v_nameless) /* a file without a name, then the name */
{
	(void)path;
	char from[64];
	if (p->flags)
		return NONE;
	int file = (int)syscall(SYS_openat, AT_FDCWD, scratch, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (file < 0)
		return -errno;
	snprintf(from, sizeof from, "/proc/self/fd/%d", file);
	int result = RESULT(syscall(SYS_linkat, AT_FDCWD, from, p->at, p->path, AT_SYMLINK_FOLLOW));
	close(file);
	return result;
}

/* -- names --------------------------------------------------------------------------------------------------------- */

VERB(v_unlink) { NAMED(p); return RESULT(syscall(SYS_unlinkat, p->at, p->path, 0)); }
VERB(v_rename_from) { NAMED(p); return RESULT(syscall(SYS_renameat2, p->at, p->path, AT_FDCWD, spare, 0)); }
VERB(v_rename_onto) { NAMED(p); return RESULT(syscall(SYS_renameat2, AT_FDCWD, own, p->at, p->path, 0)); }
VERB(v_rename_new) { NAMED(p); return RESULT(syscall(SYS_renameat2, AT_FDCWD, own, p->at, p->path, RENAME_NOREPLACE)); }
VERB(v_exchange) { NAMED(p); return RESULT(syscall(SYS_renameat2, AT_FDCWD, own, p->at, p->path, RENAME_EXCHANGE)); }
VERB(v_exchange_back) { NAMED(p); return RESULT(syscall(SYS_renameat2, p->at, p->path, AT_FDCWD, own, RENAME_EXCHANGE)); }
VERB(v_link_from) { (void)path; return RESULT(syscall(SYS_linkat, p->at, p->path, AT_FDCWD, spare, p->flags)); }
VERB(v_link_followed) { NAMED(p); return RESULT(syscall(SYS_linkat, p->at, p->path, AT_FDCWD, spare, AT_SYMLINK_FOLLOW)); }
VERB(v_link_to) { NAMED(p); return RESULT(syscall(SYS_linkat, AT_FDCWD, own, p->at, p->path, 0)); }
VERB(v_symlink) { NAMED(p); return RESULT(syscall(SYS_symlinkat, own, p->at, p->path)); }
VERB(v_mkdir) { NAMED(p); return RESULT(syscall(SYS_mkdirat, p->at, p->path, 0755)); }
VERB(v_fifo) { NAMED(p); return RESULT(syscall(SYS_mknodat, p->at, p->path, S_IFIFO | 0644, 0)); }
VERB(v_mknod) { NAMED(p); return RESULT(syscall(SYS_mknodat, p->at, p->path, S_IFREG | 0644, 0)); }
#ifdef SYS_rename
VERB(v_old_unlink) { PLAIN(p); return RESULT(syscall(SYS_unlink, p->path)); }
VERB(v_old_rename) { PLAIN(p); return RESULT(syscall(SYS_rename, own, p->path)); }
VERB(v_old_link) { PLAIN(p); return RESULT(syscall(SYS_link, p->path, spare)); }
VERB(v_old_symlink) { PLAIN(p); return RESULT(syscall(SYS_symlink, own, p->path)); }
VERB(v_old_mkdir) { PLAIN(p); return RESULT(syscall(SYS_mkdir, p->path, 0755)); }
VERB(v_old_mknod) { PLAIN(p); return RESULT(syscall(SYS_mknod, p->path, S_IFREG | 0644, 0)); }
VERB(v_old_chmod) { PLAIN(p); return RESULT(syscall(SYS_chmod, p->path, 0711)); }
VERB(v_old_chown) { PLAIN(p); return RESULT(syscall(SYS_chown, p->path, -1, getgid())); }
VERB(v_old_lchown) { PLAIN(p); return RESULT(syscall(SYS_lchown, p->path, getuid(), -1)); }
VERB(v_old_utime) { PLAIN(p); return RESULT(syscall(SYS_utime, p->path, NULL)); }
VERB(v_old_utimes) { PLAIN(p); return RESULT(syscall(SYS_utimes, p->path, NULL)); }
VERB(v_old_futimesat) { NAMED(p); return RESULT(syscall(SYS_futimesat, p->at, p->path, NULL)); }
#endif

/* -- attributes ---------------------------------------------------------------------------------------------------- */

VERB(v_chmod) { NAMED(p); return RESULT(syscall(SYS_fchmodat, p->at, p->path, 0700)); }
VERB(v_chmod2) { (void)path; return RESULT(syscall(SYS_fchmodat2, p->at, p->path, 0700, p->flags)); }
VERB(v_chown) { (void)path; return RESULT(syscall(SYS_fchownat, p->at, p->path, getuid(), getgid(), p->flags)); }
VERB(v_utime) { (void)path; return RESULT(syscall(SYS_utimensat, p->at, p->path, NULL, p->flags)); }
VERB(v_xattr) { PLAIN(p); return RESULT(syscall(SYS_setxattr, p->path, "user.x", "1", 1, 0)); }
VERB(v_lxattr) { PLAIN(p); return RESULT(syscall(SYS_lsetxattr, p->path, "user.x", "1", 1, 0)); }
VERB(v_no_xattr) { PLAIN(p); return RESULT(syscall(SYS_removexattr, p->path, "user.there")); }
VERB(v_xattr_at)
{
	(void)path;
	struct { unsigned long value; unsigned size, flags; } how = {(unsigned long)"1", 1, 0};
	return RESULT(syscall(SYS_setxattrat_, p->at, p->path, p->flags, "user.x", &how, sizeof how));
}
VERB(v_no_xattr_at) { (void)path; return RESULT(syscall(SYS_removexattrat_, p->at, p->path, p->flags, "user.there")); }
VERB(v_file_attr)
{
	(void)path;
	struct { unsigned long xflags; unsigned words[4]; } how = {FS_XFLAG_NODUMP, {0}};
	return RESULT(syscall(SYS_file_setattr_, p->at, p->path, &how, sizeof how, p->flags));
}

/* By a descriptor for reading, which the file itself may allow. */
static int by_reading(P, int (*act)(int file))
{
	if (p->flags)
		return NONE;
	long file = syscall(SYS_openat, p->at, p->path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -errno;
	int result = act((int)file);
	close((int)file);
	return result;
}

static int a_chmod(int file) { return RESULT(syscall(SYS_fchmod, file, 0700)); }
static int a_chown(int file) { return RESULT(syscall(SYS_fchown, file, getuid(), getgid())); }
static int a_utime(int file) { return RESULT(syscall(SYS_utimensat, file, NULL, NULL, 0)); }
static int a_xattr(int file) { return RESULT(syscall(SYS_fsetxattr, file, "user.x", "1", 1, 0)); }
static int a_no_xattr(int file) { return RESULT(syscall(SYS_fremovexattr, file, "user.there")); }
static int a_flags(int file) { int flags = FS_NODUMP_FL; return RESULT(ioctl(file, FS_IOC_SETFLAGS, &flags)); }
VERB(v_held_chmod) { (void)path; return by_reading(p, a_chmod); }
VERB(v_held_chown) { (void)path; return by_reading(p, a_chown); }
VERB(v_held_utime) { (void)path; return by_reading(p, a_utime); }
VERB(v_held_xattr) { (void)path; return by_reading(p, a_xattr); }
VERB(v_held_no_xattr) { (void)path; return by_reading(p, a_no_xattr); }
VERB(v_held_flags) { (void)path; return by_reading(p, a_flags); }

/* -- sockets, programs ---------------------------------------------------------------------------------------------- */

static int at_socket(P, int binding)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	if (p->at != AT_FDCWD || p->flags || strlen(p->path) >= sizeof name.sun_path)
		return NONE;
	int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(name.sun_path, p->path);
	int result = RESULT(syscall(binding ? SYS_bind : SYS_connect, one, &name, sizeof name));
	close(one);
	return result;
}

VERB(v_bind) { (void)path; return at_socket(p, 1); }
VERB(v_connect) { (void)path; return at_socket(p, 0); }

VERB(v_exec) /* a script: who executes it reads it */
{
	(void)path;
	int status;
	pid_t child = vfork();
	if (!child) {
		char *words[] = {"x", NULL}, *none[] = {NULL};
		syscall(SYS_execveat, p->at, p->path, words, none, p->flags);
		_exit(errno == EACCES ? 13 : 1);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 0 : WEXITSTATUS(status) == 1 ? -EPERM : -EACCES;
}

/* -- other doors --------------------------------------------------------------------------------------------------- */

static int done(int result) /* which may be a descriptor */
{
	if (result > 0)
		close(result);
	return result < 0 ? result : 0;
}

#ifdef __x86_64__
static sigjmp_buf back;
static void jump(int number) { (void)number; siglongjmp(back, 1); }

/* An i386 call by `int 0x80`; its paths lie below 4 GiB. */
static int i386(long number, long a, long b, long c, long d, long e)
{
	long result;
	signal(SIGSEGV, jump);
	if (sigsetjmp(back, 1))
		return -ENOSYS; /* a kernel without */
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory", "r8", "r9", "r10", "r11");
	signal(SIGSEGV, SIG_DFL);
	return done((int)result);
}

static long low(const char *text, int slot)
{
	static char *room;
	if (!room)
		room = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (room == MAP_FAILED)
		err(3, "no low memory");
	return (long)strcpy(room + slot * 1024, text);
}

VERB(v_i386_read) { PLAIN(p); return i386(5, low(p->path, 0), O_RDONLY, 0, 0, 0); }
VERB(v_i386_write) { PLAIN(p); return i386(5, low(p->path, 0), O_WRONLY, 0, 0, 0); }
VERB(v_i386_openat) { PLAIN(p); return i386(295, AT_FDCWD, low(p->path, 0), O_WRONLY | O_TRUNC, 0, 0); }
VERB(v_i386_truncate) { PLAIN(p); return i386(92, low(p->path, 0), 1, 0, 0, 0); }
VERB(v_i386_unlink) { PLAIN(p); return i386(10, low(p->path, 0), 0, 0, 0, 0); }
VERB(v_i386_rename) { PLAIN(p); return i386(38, low(own, 1), low(p->path, 0), 0, 0, 0); }
VERB(v_i386_link) { PLAIN(p); return i386(9, low(p->path, 0), low(spare, 1), 0, 0, 0); }
VERB(v_i386_chmod) { PLAIN(p); return i386(15, low(p->path, 0), 0700, 0, 0, 0); }
VERB(v_i386_chown) { PLAIN(p); return i386(212, low(p->path, 0), getuid(), getgid(), 0, 0); }
VERB(v_i386_utime) { PLAIN(p); return i386(30, low(p->path, 0), 0, 0, 0, 0); }
VERB(v_i386_xattr) { PLAIN(p); return i386(226, low(p->path, 0), low("user.x", 1), low("1", 2), 1, 0); }
VERB(v_i386_create) { PLAIN(p); return i386(8, low(p->path, 0), 0644, 0, 0, 0); }
VERB(v_i386_symlink) { PLAIN(p); return i386(83, low(own, 1), low(p->path, 0), 0, 0, 0); }
VERB(v_i386_mkdir) { PLAIN(p); return i386(39, low(p->path, 0), 0755, 0, 0, 0); }
VERB(v_i386_mknod) { PLAIN(p); return i386(14, low(p->path, 0), S_IFREG | 0644, 0, 0, 0); }
VERB(v_x32_write) { PLAIN(p); return RESULT(syscall(SYS_open | 0x40000000, p->path, O_WRONLY)); }
VERB(v_x32_unlink) { PLAIN(p); return RESULT(syscall(SYS_unlink | 0x40000000, p->path)); }
#endif

/* One request by a ring of io_uring. */
static int ring(struct io_uring_sqe request)
{
	struct io_uring_params how = {0};
	int file = (int)syscall(SYS_io_uring_setup, 1, &how);
	if (file < 0)
		return -errno;
	char *queue = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, IORING_OFF_SQ_RING);
	char *results = how.features & IORING_FEAT_SINGLE_MMAP ? queue : mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, IORING_OFF_CQ_RING);
	struct io_uring_sqe *requests = mmap(NULL, sizeof request, PROT_READ | PROT_WRITE, MAP_SHARED, file, IORING_OFF_SQES);
	if (queue == MAP_FAILED || results == MAP_FAILED || requests == MAP_FAILED)
		err(3, "ring");
	requests[0] = request;
	*(unsigned *)(queue + how.sq_off.array) = 0;
	__atomic_store_n((unsigned *)(queue + how.sq_off.tail), 1, __ATOMIC_RELEASE);
	long entered = syscall(SYS_io_uring_enter, file, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	int result = entered < 0 ? -errno : ((struct io_uring_cqe *)(results + how.cq_off.cqes))->res;
	munmap(queue, 8192);
	if (results != queue)
		munmap(results, 8192);
	munmap(requests, sizeof request);
	close(file);
	return done(result);
}

static int ring_path(P, int operation, int flags)
{
	if (p->flags)
		return NONE;
	return ring((struct io_uring_sqe){.opcode = operation, .fd = (int)p->at, .addr = (unsigned long)p->path, .open_flags = flags, .len = 0644});
}

VERB(v_ring_read) { (void)path; return ring_path(p, IORING_OP_OPENAT, O_RDONLY); }
VERB(v_ring_write) { (void)path; return ring_path(p, IORING_OP_OPENAT, O_WRONLY); }
VERB(v_ring_create) { (void)path; return ring_path(p, IORING_OP_OPENAT, O_WRONLY | O_CREAT); }
VERB(v_ring_mkdir) { (void)path; return ring_path(p, IORING_OP_MKDIRAT, 0); }
VERB(v_ring_unlink)
{
	NAMED(p);
	return ring((struct io_uring_sqe){.opcode = IORING_OP_UNLINKAT, .fd = (int)p->at, .addr = (unsigned long)p->path});
}
VERB(v_ring_rename)
{
	NAMED(p);
	return ring((struct io_uring_sqe){.opcode = IORING_OP_RENAMEAT, .fd = AT_FDCWD, .addr = (unsigned long)own,
					  .len = (unsigned)p->at, .addr2 = (unsigned long)p->path});
}

static int by_handle(P, T, int flags)
{
	struct { struct file_handle head; unsigned char rest[128]; } handle = {.head.handle_bytes = 128};
	int mount;
	if (p->flags)
		return NONE;
	if (name_to_handle_at((int)p->at, p->path, &handle.head, &mount, AT_SYMLINK_FOLLOW))
		return -errno;
	int folder = (int)syscall(SYS_openat, AT_FDCWD, scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long file = syscall(SYS_open_by_handle_at, folder, &handle, flags | O_CLOEXEC);
	int result = use(file, flags == O_RDONLY);
	close(folder);
	(void)path;
	return result;
}

VERB(v_handle_read) { return by_handle(p, path, O_RDONLY); }
VERB(v_handle_write) { return by_handle(p, path, O_WRONLY); }

/* -- the table ------------------------------------------------------------------------------------------------------ */

#define ROW2(suffix) \
	{"read2-" #suffix, PRESENT, AT | FOLLOWS, v_read2_##suffix}, {"write2-" #suffix, PRESENT, AT | FOLLOWS, v_write2_##suffix}, \
	{"create2-" #suffix, ABSENT, AT | FOLLOWS, v_create2_##suffix}

static const struct verb verbs[] = {
	{"read", PRESENT, AT | FOLLOWS, v_read}, {"write", PRESENT, AT | FOLLOWS, v_write},
	{"append", PRESENT, AT | FOLLOWS, v_append}, {"both", PRESENT, AT | FOLLOWS, v_both},
	{"empty", PRESENT, AT | FOLLOWS, v_empty}, {"read-empty", PRESENT, AT | FOLLOWS, v_read_empty},
	{"over", PRESENT, AT | FOLLOWS, v_over}, {"over-empty", PRESENT, AT | FOLLOWS, v_over_empty},
	{"create", ABSENT, AT | FOLLOWS, v_create}, {"create-alone", ABSENT, AT, v_create_alone},
	ROW2(plain), ROW2(no_xdev), ROW2(no_magic), ROW2(no_links), ROW2(beneath), ROW2(in_root), ROW2(cached), ROW2(many),
	{"truncate", PRESENT, FOLLOWS, v_truncate}, {"nameless", ABSENT, AT, v_nameless},
	{"unlink", PRESENT, AT, v_unlink}, {"rename-from", PRESENT, AT, v_rename_from},
	{"rename-onto", PRESENT, AT, v_rename_onto}, {"rename-new", ABSENT, AT, v_rename_new},
	{"exchange", PRESENT, AT, v_exchange}, {"exchange-back", PRESENT, AT, v_exchange_back},
	{"link-from", PRESENT, AT | EMPTY, v_link_from}, {"link-followed", PRESENT, AT | FOLLOWS, v_link_followed},
	{"link-to", ABSENT, AT, v_link_to}, {"symlink", ABSENT, AT, v_symlink}, {"mkdir", ABSENT, AT, v_mkdir},
	{"fifo", ABSENT, AT, v_fifo}, {"mknod", ABSENT, AT, v_mknod},
	{"chmod", PRESENT, AT | FOLLOWS, v_chmod}, {"chmod2", PRESENT, AT | FOLLOWS | EMPTY, v_chmod2},
	{"chown", PRESENT, AT | FOLLOWS | EMPTY, v_chown}, {"utime", PRESENT, AT | FOLLOWS | EMPTY, v_utime},
	{"xattr", PRESENT, FOLLOWS, v_xattr}, {"lxattr", PRESENT, 0, v_lxattr}, {"no-xattr", PRESENT, FOLLOWS, v_no_xattr},
	{"xattr-at", PRESENT, AT | FOLLOWS | EMPTY, v_xattr_at}, {"no-xattr-at", PRESENT, AT | FOLLOWS | EMPTY, v_no_xattr_at},
	{"file-attr", PRESENT, AT | FOLLOWS | EMPTY, v_file_attr},
	{"held-chmod", PRESENT, AT | FOLLOWS, v_held_chmod}, {"held-chown", PRESENT, AT | FOLLOWS, v_held_chown},
	{"held-utime", PRESENT, AT | FOLLOWS, v_held_utime}, {"held-xattr", PRESENT, AT | FOLLOWS, v_held_xattr},
	{"held-no-xattr", PRESENT, AT | FOLLOWS, v_held_no_xattr}, {"held-flags", PRESENT, AT | FOLLOWS, v_held_flags},
	{"exec", PRESENT, AT | FOLLOWS | EMPTY, v_exec}, {"bind", ABSENT, 0, v_bind}, {"connect", SOCKET, FOLLOWS, v_connect},
#ifdef SYS_open
	{"open-read", PRESENT, FOLLOWS, v_open_read}, {"open-write", PRESENT, FOLLOWS, v_open_write},
	{"creat", PRESENT, FOLLOWS, v_creat}, {"old-unlink", PRESENT, 0, v_old_unlink}, {"old-rename", PRESENT, 0, v_old_rename},
	{"old-link", PRESENT, 0, v_old_link}, {"old-symlink", ABSENT, 0, v_old_symlink}, {"old-mkdir", ABSENT, 0, v_old_mkdir},
	{"old-mknod", ABSENT, 0, v_old_mknod}, {"old-chmod", PRESENT, FOLLOWS, v_old_chmod},
	{"old-chown", PRESENT, FOLLOWS, v_old_chown}, {"old-lchown", PRESENT, 0, v_old_lchown},
	{"old-utime", PRESENT, FOLLOWS, v_old_utime}, {"old-utimes", PRESENT, FOLLOWS, v_old_utimes},
	{"old-futimesat", PRESENT, AT | FOLLOWS, v_old_futimesat},
#endif
#ifdef __x86_64__
	{"i386-read", PRESENT, FOLLOWS, v_i386_read}, {"i386-write", PRESENT, FOLLOWS, v_i386_write},
	{"i386-openat", PRESENT, FOLLOWS, v_i386_openat}, {"i386-truncate", PRESENT, FOLLOWS, v_i386_truncate},
	{"i386-unlink", PRESENT, 0, v_i386_unlink}, {"i386-rename", PRESENT, 0, v_i386_rename},
	{"i386-link", PRESENT, 0, v_i386_link}, {"i386-chmod", PRESENT, FOLLOWS, v_i386_chmod},
	{"i386-chown", PRESENT, FOLLOWS, v_i386_chown}, {"i386-utime", PRESENT, FOLLOWS, v_i386_utime},
	{"i386-xattr", PRESENT, FOLLOWS, v_i386_xattr}, {"i386-create", ABSENT, 0, v_i386_create},
	{"i386-symlink", ABSENT, 0, v_i386_symlink}, {"i386-mkdir", ABSENT, 0, v_i386_mkdir},
	{"i386-mknod", ABSENT, 0, v_i386_mknod}, {"x32-write", PRESENT, 0, v_x32_write}, {"x32-unlink", PRESENT, 0, v_x32_unlink},
#endif
	{"ring-read", PRESENT, AT | FOLLOWS, v_ring_read}, {"ring-write", PRESENT, AT | FOLLOWS, v_ring_write},
	{"ring-create", ABSENT, AT, v_ring_create}, {"ring-mkdir", ABSENT, AT, v_ring_mkdir},
	{"ring-unlink", PRESENT, AT, v_ring_unlink}, {"ring-rename", PRESENT, AT, v_ring_rename},
	{"handle-read", PRESENT, AT | FOLLOWS, v_handle_read}, {"handle-write", PRESENT, AT | FOLLOWS, v_handle_write},
};

const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	errx(3, "no verb %s", name);
}
