/* One cell of the matrix after another: VERB on PATH, by way of ROUTE, done by ACTOR.
 *
 * Arguments: a folder of our own, a foreign folder for marks, a file with a line "NUMBER ACTOR ROUTE VERB PATH" for each
 * cell, and `fresh` for the control, which makes the object of each cell anew. Prints "NUMBER RESULT" for each: 0, minus
 * the errno, or "-" where the verb cannot take that route. Before each cell an attempt to make MARKS/NUMBER, which is
 * refused, tells the log where the cell begins. Verbs are raw system calls. */
#define _GNU_SOURCE
#include "matrix.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

char own[PATH_SIZE], spare[PATH_SIZE], scratch[PATH_SIZE];
static const char *marks, *self;
static int fresh;

/* -- objects ------------------------------------------------------------------------------------------------------ */

static void clear(const char *path)
{
	if (unlink(path) && errno != ENOENT)
		rmdir(path);
}

void fill(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
	const char *text = "#!/bin/sh\nexit 42\n";
	if (file < 0 || write(file, text, strlen(text)) < 0)
		err(3, "%s", path);
	fchmod(file, 0755);
	close(file);
}

static void prepare(const struct verb *verb, const char *path)
{
	struct stat info;
	if (lstat(own, &info) || !S_ISREG(info.st_mode)) {
		clear(own);
		fill(own);
	}
	if (!lstat(spare, &info))
		clear(spare);
	if (!fresh || verb->kind == SOCKET)
		return;
	if (verb->kind == ABSENT || lstat(path, &info) || !S_ISREG(info.st_mode))
		clear(path);
	if (verb->kind == PRESENT) {
		fill(path);
		setxattr(path, "user.there", "1", 1, 0);
	}
}

/* -- routes: how the path is told ---------------------------------------------------------------------------------- */

static int opened(const char *path, int flags)
{
	int file = open(path, flags | O_CLOEXEC);
	return file < 0 ? -errno : file;
}

static int sent(const char *path, int flags)
{
	int pair[2], file = -1;
	char byte = 0, room[CMSG_SPACE(sizeof file)];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	pid_t child = fork();
	if (!child) {
		file = open(path, flags);
		struct cmsghdr *head = CMSG_FIRSTHDR(&message);
		*head = (struct cmsghdr){CMSG_LEN(sizeof file), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(head), &file, sizeof file);
		_exit(file < 0 || sendmsg(pair[0], &message, 0) != 1);
	}
	close(pair[0]);
	long got = recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC);
	waitpid(child, NULL, 0);
	close(pair[1]);
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (got != 1 || !head)
		return -EACCES;
	memcpy(&file, CMSG_DATA(head), sizeof file);
	return file;
}

static void link_to(const char *name, const char *target)
{
	char there[PATH_SIZE];
	long size = readlink(name, there, sizeof there - 1);
	if (size == (long)strlen(target) && !memcmp(there, target, size))
		return;
	unlink(name);
	if (symlink(target, name))
		err(3, "symlink %s", name);
}

/* Fill `place`; 0, or minus an errno when already that is refused, or NONE. */
static int lead(const char *route, const struct verb *verb, const char *path, struct place *place)
{
	char folder[PATH_SIZE];
	const char *name = strrchr(path, '/') + 1;
	snprintf(folder, sizeof folder, "%.*s", (int)(name - path - 1), path);
	*place = (struct place){.at = AT_FDCWD};
	char *out = place->path;
	int held = -1;
#define SAY(...) snprintf(out, PATH_SIZE, __VA_ARGS__)
	if (!strcmp(route, "direct"))
		SAY("%s", path);
	else if (!strcmp(route, "dots"))
		SAY("//%s/.//../%s/./%s", folder, strrchr(folder, '/') + 1, name);
	else if (!strcmp(route, "cwd") || !strcmp(route, "self-cwd")) {
		if (chdir(folder))
			return -errno;
		SAY(route[0] == 'c' ? "%s" : "/proc/self/cwd/%s", name);
	} else if (!strcmp(route, "self-root"))
		SAY("/proc/self/root%s", path);
	else if (!strcmp(route, "task-root"))
		SAY("/proc/%d/task/%ld/root/%s", getpid(), syscall(SYS_gettid), path);
	else if (!strcmp(route, "parent-root"))
		SAY("/proc/%d/root%s", getppid(), path);
	else if (!strcmp(route, "link-to-folder")) {
		link_to("folder", folder);
		SAY("folder/%s", name);
	} else if (!strcmp(route, "links")) {
		link_to("second", folder);
		link_to("first", "../scratch/second/.");
		SAY("first/%s", name);
	} else if (!strcmp(route, "link-to-magic")) {
		link_to("magic", "/proc/self/root");
		SAY("magic%s", path);
	} else if (!strcmp(route, "link")) {
		if (!(verb->takes & FOLLOWS))
			return NONE;
		link_to("via", path);
		SAY("via");
	} else if (!strcmp(route, "folder-descriptor") || !strcmp(route, "sent-folder") || !strcmp(route, "odd-register")) {
		if (!(verb->takes & AT))
			return NONE;
		place->at = route[0] == 's' ? sent(folder, O_PATH) : opened(folder, O_PATH);
		if (place->at < 0)
			return place->at;
		if (route[0] == 'o')
			place->at |= 0x5eed00000000;
		SAY("%s", name);
	} else if (!strcmp(route, "self-fd-folder") || !strcmp(route, "thread-fd-folder") || !strcmp(route, "dev-fd-folder")) {
		held = place->held = opened(folder, O_PATH);
		if (held < 0)
			return held;
		SAY("%s/%d/%s", route[0] == 's' ? "/proc/self/fd" : route[0] == 't' ? "/proc/thread-self/fd" : "/dev/fd", held, name);
	} else if (!strcmp(route, "self-fd") || !strcmp(route, "sent-file") || !strcmp(route, "pid-fd")) {
		if (!(verb->takes & FOLLOWS) || verb->kind == ABSENT)
			return NONE;
		held = place->held = !strcmp(route, "sent-file") ? sent(path, O_PATH) : opened(path, O_PATH);
		if (held < 0)
			return held;
		if (route[0] == 'p')
			SAY("/proc/%d/fd/%d", getpid(), held);
		else
			SAY("/proc/self/fd/%d", held);
	} else if (!strcmp(route, "empty")) {
		if (!(verb->takes & EMPTY))
			return NONE;
		place->at = opened(path, O_PATH);
		if (place->at < 0)
			return place->at;
		place->flags = AT_EMPTY_PATH;
	} else if (!strcmp(route, "inherited")) { /* descriptor 9: the folder of the first object, from before the start */
		if (!(verb->takes & AT))
			return NONE;
		place->at = dup(9);
		SAY("%s", name);
	} else if (!strcmp(route, "alias")) /* the same file system, mounted a second time before the start */
		SAY("%s", path);
	else
		errx(3, "no route %s", route);
	return 0;
}

/* -- one cell ------------------------------------------------------------------------------------------------------ */

int one(const char *route, const char *name, const char *path)
{
	struct place place;
	const struct verb *verb = find_verb(name);
	int result = lead(route, verb, path, &place);
	if (!result)
		result = verb->act(&place, path);
	if (place.at >= 0)
		close((int)place.at);
	if (place.held > 0)
		close(place.held);
	if (chdir(scratch))
		err(3, "%s", scratch);
	return result;
}

/* -- actors: who does it ------------------------------------------------------------------------------------------- */

struct errand { const char *route, *verb, *path; int result; };

static void *run(void *argument)
{
	struct errand *errand = argument;
	errand->result = one(errand->route, errand->verb, errand->path);
	return NULL;
}

static int run_child(void *argument)
{
	run(argument);
	return 0;
}

static int listener = -1;

static void *say_yes(void *unused) /* answers every call of the other threads: go on */
{
	(void)unused;
	while (__atomic_load_n(&listener, __ATOMIC_ACQUIRE) == -1)
		sched_yield();
	for (;;) {
		struct seccomp_notif asked = {0};
		struct seccomp_notif_resp answer = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked))
			continue;
		answer.id = asked.id;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	return NULL;
}

static int hear_for_oneself(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	pthread_t thread;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (pthread_create(&thread, NULL, say_yes, NULL))
		return -EAGAIN;
	long got = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (got < 0)
		return -errno;
	__atomic_store_n(&listener, (int)got, __ATOMIC_RELEASE);
	return 0;
}

/* Execute ourselves for one cell, in a way that hides the program: the result comes over descriptor 8. */
static void become(const char *actor, struct errand *errand, int answer)
{
	char *words[] = {(char *)self, "--one", scratch, (char *)errand->route, (char *)errand->verb, (char *)errand->path, NULL};
	char *loaded[] = {"/lib64/ld-linux-x86-64.so.2", (char *)self, "--one", scratch, words[3], words[4], words[5], NULL};
	dup2(answer, 8);
	if (!strcmp(actor, "loader"))
		execv(loaded[0], loaded);
	if (!strcmp(actor, "script")) {
		char script[PATH_SIZE];
		snprintf(script, sizeof script, "%s/script", scratch);
		int file = open(script, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
		dprintf(file, "#!%s --script\n%s %s %s %s\n", self, scratch, words[3], words[4], words[5]);
		close(file);
		words[0] = script;
		execv(script, words);
	}
	if (!strcmp(actor, "memfd")) {
		int from = open(self, O_RDONLY | O_CLOEXEC), into = memfd_create("x", MFD_CLOEXEC);
		char block[65536];
		for (long n; (n = read(from, block, sizeof block)) > 0;)
			if (write(into, block, n) != n)
				_exit(3);
		syscall(SYS_execveat, into, "", words, environ, AT_EMPTY_PATH);
	}
	_exit(4);
}

static int act(const char *actor, struct errand *errand)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	pthread_t thread;
	int pipes[2], result = -ECHILD;
	if (!strcmp(actor, "self")) {
		run(errand);
		return errand->result;
	}
	if (!strcmp(actor, "thread")) {
		if (pthread_create(&thread, NULL, run, errand) || pthread_join(thread, NULL))
			err(3, "thread");
		return errand->result;
	}
	if (!strcmp(actor, "shared")) { /* memory, descriptors and directory shared, and yet no thread */
		pid_t child = clone(run_child, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_VFORK | SIGCHLD, errand);
		waitpid(child, NULL, 0);
		return errand->result;
	}
	if (pipe2(pipes, O_CLOEXEC))
		err(3, "pipe");
	pid_t child = fork();
	if (!child) {
		close(pipes[0]);
		if (!strcmp(actor, "orphan") && (fork() || setsid() < 0))
			_exit(0);
		if (!strcmp(actor, "memfd") || !strcmp(actor, "script") || !strcmp(actor, "loader"))
			become(actor, errand, pipes[1]);
		result = strcmp(actor, "listener") ? 0 : hear_for_oneself();
		if (!result) {
			run(errand);
			result = errand->result;
		}
		if (write(pipes[1], &result, sizeof result) < 0)
			_exit(5);
		_exit(0);
	}
	close(pipes[1]);
	if (read(pipes[0], &result, sizeof result) != sizeof result)
		result = -ECHILD;
	close(pipes[0]);
	waitpid(child, NULL, 0);
	return result;
}

static void settle(const char *folder)
{
	snprintf(scratch, sizeof scratch, "%s", folder);
	snprintf(own, sizeof own, "%.300s/own", folder);
	snprintf(spare, sizeof spare, "%.300s/spare", folder);
	if (chdir(folder))
		err(3, "%s", folder);
}

int main(int count, char **words)
{
	umask(022);
	if (count > 2 && !strcmp(words[1], "--script")) {
		static char line[4][PATH_SIZE];
		FILE *file = fopen(words[2], "r");
		if (!file || fscanf(file, "%*[^\n] %399s %399s %399s %399s", line[0], line[1], line[2], line[3]) != 4)
			return 6;
		fclose(file);
		settle(line[0]);
		int result = one(line[1], line[2], line[3]);
		return write(8, &result, sizeof result) < 0;
	}
	if (count == 6 && !strcmp(words[1], "--one")) {
		settle(words[2]);
		int result = one(words[3], words[4], words[5]);
		return write(8, &result, sizeof result) < 0;
	}
	if (count < 4)
		errx(3, "SCRATCH MARKS PLAN [fresh]");
	self = words[0];
	marks = words[2];
	fresh = count > 4;
	FILE *plan = fopen(words[3], "re");
	if (!plan)
		err(3, "%s", words[3]);
	settle(words[1]);
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	char number[16], actor[32], route[32], verb[32], path[PATH_SIZE], mark[PATH_SIZE];
	while (fscanf(plan, "%15s %31s %31s %31s %399s", number, actor, route, verb, path) == 5) {
		const char *session = getenv("PINCER_DENIALS");
		if (path[0] == '@' && session) {
			char rest[PATH_SIZE];
			snprintf(rest, sizeof rest, "%s", path + 1);
			snprintf(path, sizeof path, "%.*s%.100s", (int)(strrchr(session, '/') - session), session, rest);
		}
		prepare(find_verb(verb), path);
		struct errand errand = {route, verb, path, -ECHILD};
		snprintf(mark, sizeof mark, "%.300s/%s", marks, number);
		if (!mkdir(mark, 0700))
			rmdir(mark);
		int result = act(actor, &errand);
		if (result == NONE)
			printf("%s -\n", number);
		else
			printf("%s %d\n", number, result);
	}
	snprintf(mark, sizeof mark, "%.300s/end", marks);
	if (!mkdir(mark, 0700))
		rmdir(mark);
	return 0;
}
