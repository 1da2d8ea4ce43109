/* Random system calls, of numbers and arguments that are worth trying.
 *
 * Arguments: a seed, children in all, calls of each, a file with a line "NUMBER SIGNATURE" for each call that may be made
 * (a letter an argument: d a descriptor, p a path, f flags, m a mode, n a size, b a buffer, h an open_how, a an address,
 * * anything), a file with a path a line, and "DEVICE:INODE:r" or ":w" for what no descriptor may be opened on at all, or
 * for writing. Four children at once, each for itself, some with a thread that changes what the arguments point to; one
 * that makes no progress is ended. Prints what was opened that must not be, and how many calls were made and succeeded. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 4, ROOM = 4096 };

struct call { long number; char signature[8]; };
static struct call calls[2048];
static char *paths[256];
static struct { unsigned long device, inode; int reading; } forbidden[64];
static int call_count, path_count, forbidden_count;
static struct { unsigned long made, succeeded, opened; } *tally; /* one a slot, shared */
static char *page; /* the last of its mapping: what follows is not there */
static char *arena, start[ROOM];

static __thread unsigned long state;

static unsigned long chance(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545F4914F6CDD1D;
}

static unsigned long below(unsigned long most) { return (chance() >> 16) % most; }

static const unsigned long odd[] = {
	0, 1, 2, 3, 4, 7, 8, 9, 16, 64, 255, 4095, 4096, 4097, 65535, 0x7fffffff, 0x80000000, 0xffffffff, 0xffffff9c,
	(unsigned long)-1, (unsigned long)-100, 0x100000000, 0x1ffffff9c, 0x7fffffffffffffff, 0x8000000000000000,
};

static unsigned long a_number(void)
{
	switch (below(4)) {
	case 0: return odd[below(sizeof odd / sizeof *odd)];
	case 1: return below(64);
	case 2: return 1ul << below(64) | 1ul << below(64);
	default: return chance();
	}
}

static unsigned long a_path(void)
{
	char *at = arena + below(4) * ROOM;
	unsigned long kind = below(20);
	if (kind == 0)
		return below(2) ? 0 : (unsigned long)page + ROOM; /* nowhere */
	if (kind == 1) { /* no end before the end of what is mapped */
		char *end = page + ROOM - 1 - below(40);
		memset(end, 'x', page + ROOM - end);
		return (unsigned long)end;
	}
	if (kind == 2) { /* the end is the last byte that is there */
		const char *path = paths[below(path_count)];
		return (unsigned long)strcpy(page + ROOM - strlen(path) - 1, path);
	}
	if (kind == 3)
		sprintf(at, "/proc/self/fd/%lu%s", below(24), below(2) ? "" : "/c");
	else if (kind == 4)
		sprintf(at, "/proc/%d/%s", (int)(below(2) ? getppid() : getpid()), (const char *[]){"mem", "environ", "cwd/a", "root/etc/passwd", "fd/3", "maps"}[below(6)]);
	else if (kind == 5) { /* long */
		memset(at, "/x."[below(3)], ROOM - 1);
		at[ROOM - 1 - below(ROOM)] = 0;
	} else
		snprintf(at, ROOM, "%s%s", paths[below(path_count)], below(10) ? "" : (const char *[]){"/", "/.", "/..", "\n\x1b[2J\xff"}[below(4)]);
	return (unsigned long)at;
}

static unsigned long a_buffer(void)
{
	unsigned long *words = (unsigned long *)(arena + (4 + below(4)) * ROOM);
	if (!below(12))
		return below(2) ? 0 : (unsigned long)page + ROOM - below(8);
	for (int i = 0; i < 64; i++)
		words[i] = below(3) ? a_number() : below(2) ? a_path() : 0;
	return (unsigned long)words;
}

static unsigned long argument(char letter)
{
	static const unsigned long flags[] = {
		O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_NONBLOCK, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_TMPFILE,
		O_CLOEXEC, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, 1, 2, 4,
	};
	if (!below(25))
		letter = '*';
	switch (letter) {
	case 'd': return below(3) ? (below(4) ? (unsigned long)AT_FDCWD : 0xffffff9c) : below(24) | (below(9) ? 0 : chance() << 32);
	case 'p': return a_path();
	case 'f': return (below(3) ? flags[below(20)] : 0) | (below(3) ? 0 : flags[below(20)]) | (below(9) ? 0 : flags[below(20)]);
	case 'm': return below(2) ? 0644 | (below(4) ? 0 : S_IFIFO) : below(0200000);
	case 'n': return odd[below(16)];
	case 'b': return a_buffer();
	case 'h': {
		struct open_how *how = (struct open_how *)(arena + 8 * ROOM);
		*how = (struct open_how){.flags = argument('f'), .mode = below(2) ? 0644 : 0, .resolve = below(2) ? 0 : below(64)};
		return (unsigned long)how;
	}
	case 'a': {
		struct sockaddr_un *name = (struct sockaddr_un *)(arena + 9 * ROOM);
		memset(name, 0, sizeof *name);
		name->sun_family = below(9) ? AF_UNIX : (unsigned short)below(64);
		snprintf(name->sun_path, sizeof name->sun_path - 1, "%s", paths[below(path_count)]);
		if (!below(6))
			name->sun_path[0] = 0;
		return (unsigned long)name;
	}
	default: return below(3) ? a_number() : below(2) ? a_buffer() : a_path();
	}
}

/* Changes what the calls of the other thread point to, while they are made. */
static void *scribble(void *seed)
{
	state = (unsigned long)seed;
	for (;;) {
		char *at = arena + below(10) * ROOM;
		if (below(2))
			strcpy(at, paths[below(path_count)]);
		else
			((volatile unsigned long *)at)[below(16)] = a_number();
	}
	return NULL;
}

static void watch(int slot, long descriptor)
{
	struct stat info;
	int flags = fcntl((int)descriptor, F_GETFL);
	if (flags < 0 || flags & O_PATH || fstat((int)descriptor, &info))
		return;
	for (int i = 0; i < forbidden_count; i++)
		if (info.st_dev == forbidden[i].device && info.st_ino == forbidden[i].inode &&
		    (forbidden[i].reading || (flags & O_ACCMODE) != O_RDONLY))
			__atomic_add_fetch(&tally[slot].opened, 1, __ATOMIC_RELAXED);
}

static void child(int slot, unsigned long seed, long most)
{
	struct rlimit small = {1 << 20, 1 << 20}, few = {64, 64}, memory = {1ul << 28, 1ul << 28}, seconds = {20, 20};
	setrlimit(RLIMIT_FSIZE, &small);
	setrlimit(RLIMIT_NOFILE, &few);
	setrlimit(RLIMIT_AS, &memory);
	setrlimit(RLIMIT_CPU, &seconds);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int nowhere = open("/dev/null", O_RDWR); /* what it writes must not be taken for our report */
	if (nowhere < 0 || dup2(nowhere, 1) < 0 || dup2(nowhere, 2) < 0)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
	state = seed * 0x9E3779B97F4A7C15 + 1;
	for (int i = 0; i < 20; i++)
		chance();
	pthread_t thread;
	if (seed % 4 == 0 && pthread_create(&thread, NULL, scribble, (void *)(seed | 1)))
		_exit(1);
	for (int i = 0; i < 4; i++) { /* something to be known by its number */
		open((const char *[]){"a", "d", ".", "/proc/self"}[i], i & 1 ? O_PATH : O_RDONLY);
		socket(AF_UNIX, i & 1 ? SOCK_STREAM : SOCK_SEQPACKET, 0);
	}
	for (long i = 0; i < most; i++) {
		struct call *one = &calls[below(call_count)];
		unsigned long words[6];
		for (int n = 0; n < 6; n++)
			words[n] = argument(one->signature[n]);
		long number = below(50) ? one->number : (long)(below(3) ? 470 + below(200) : chance());
		if (number != one->number && (number & 0x3fffffff) < 470)
			continue; /* a known one, which may be left out for a reason */
		long result = syscall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
		__atomic_add_fetch(&tally[slot].made, 1, __ATOMIC_RELAXED);
		if (result >= 0)
			__atomic_add_fetch(&tally[slot].succeeded, 1, __ATOMIC_RELAXED);
		if (result > 2 && result < 64) {
			watch(slot, result);
			if (below(3) || result > 40)
				close((int)result);
		}
		if (!below(16)) { /* back to where the paths lead somewhere */
			syscall(SYS_chdir, start);
			syscall(SYS_umask, 022);
		}
	}
	_exit(0);
}

int main(int count, char **words)
{
	char line[ROOM];
	if (count < 6)
		errx(2, "SEED CHILDREN CALLS PLAN PATHS [DEVICE:INODE:r|w ...]");
	unsigned long seed = strtoul(words[1], NULL, 0), made = 0, succeeded = 0, opened = 0, early = 0;
	long children = atol(words[2]), most = atol(words[3]);
	FILE *plan = fopen(words[4], "re"), *names = fopen(words[5], "re");
	if (!plan || !names)
		err(2, "plan");
	while (call_count < 2048 && fscanf(plan, "%ld %7s", &calls[call_count].number, calls[call_count].signature) == 2)
		call_count++;
	while (path_count < 256 && fgets(line, sizeof line, names)) {
		line[strcspn(line, "\n")] = 0;
		paths[path_count++] = strdup(line);
	}
	for (int i = 6; i < count && forbidden_count < 64; i++, forbidden_count++) {
		char kind;
		if (sscanf(words[i], "%lu:%lu:%c", &forbidden[forbidden_count].device, &forbidden[forbidden_count].inode, &kind) != 3)
			errx(2, "%s", words[i]);
		forbidden[forbidden_count].reading = kind == 'r';
	}
	tally = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	arena = mmap(NULL, 16 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + ROOM, ROOM);
	fclose(plan);
	fclose(names);
	if (!getcwd(start, sizeof start))
		err(2, "where");

	sigset_t ended;
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ended, NULL);
	pid_t running[AT_ONCE] = {0};
	unsigned long seen[AT_ONCE] = {0};
	int idle[AT_ONCE] = {0}, busy = 0;
	for (long started = 0; started < children || busy;) {
		for (int slot = 0; slot < AT_ONCE; slot++)
			if (!running[slot] && started < children) {
				running[slot] = fork();
				if (!running[slot])
					child(slot, seed + (unsigned long)started, most);
				if (running[slot] < 0)
					err(2, "fork");
				started++, busy++, idle[slot] = 0;
			}
		struct timespec moment = {0, 50000000};
		sigtimedwait(&ended, NULL, &moment);
		for (int slot = 0; slot < AT_ONCE; slot++) {
			int status;
			if (!running[slot])
				continue;
			if (waitpid(running[slot], &status, WNOHANG) == running[slot]) {
				running[slot] = 0, busy--, early += status != 0;
				continue;
			}
			unsigned long now = __atomic_load_n(&tally[slot].made, __ATOMIC_RELAXED);
			idle[slot] = now == seen[slot] ? idle[slot] + 1 : 0;
			seen[slot] = now;
			if (idle[slot] > 8)
				kill(running[slot], SIGKILL);
		}
	}
	for (int slot = 0; slot < AT_ONCE; slot++)
		made += tally[slot].made, succeeded += tally[slot].succeeded, opened += tally[slot].opened;
	printf("made=%lu succeeded=%lu opened=%lu early=%lu\n", made, succeeded, opened, early);
	return 0;
}
