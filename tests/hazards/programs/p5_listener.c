/* P5: what a worker can do about its filter.
 *   p5_listener now       try to install a listener of our own in every way: prints errno of each
 *   p5_listener orphan    as a daemon: wait until the supervisor has gone (an open answers ENOSYS), then try again to
 *                         become our own supervisor and to write; prints what came of it */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long listen_to(unsigned long operation, unsigned long flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {4, code};
	long result = syscall(SYS_seccomp, operation, flags, &program);
	return result < 0 ? -errno : result;
}

static int now(void)
{
	unsigned long high = 0xabcdUL << 32;
	printf("plain=%ld ", listen_to(1, SECCOMP_FILTER_FLAG_NEW_LISTENER));
	printf("tsync=%ld ", listen_to(1, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | 1 << 4));
	printf("killable=%ld ", listen_to(1, SECCOMP_FILTER_FLAG_NEW_LISTENER | 1 << 5));
	printf("high=%ld ", listen_to(high | 1, high | SECCOMP_FILTER_FLAG_NEW_LISTENER));
	printf("own=%ld\n", listen_to(1, 0)); /* a filter without a listener stays possible */
	return 0;
}

/* Every way to an effect that is left: the number of those that worked. */
static int effects(void)
{
	int worked = 0;
	worked += open("orphan-file", O_CREAT | O_WRONLY, 0600) >= 0;
	worked += syscall(SYS_mkdirat, AT_FDCWD, "orphan-dir", 0700) == 0;
	worked += open("there", O_WRONLY | O_TRUNC) >= 0;
	worked += rename("there", "elsewhere") == 0;
	worked += unlink("there") == 0;
	worked += chmod("there", 0777) == 0;
	return worked;
}

static int orphan(void)
{
	pid_t middle = fork();
	if (middle) { /* the command itself goes on, else the run would end */
		waitpid(middle, NULL, 0);
		pause();
		return 0;
	}
	setsid();
	signal(SIGHUP, SIG_IGN);
	if (fork())
		return 0;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("ready %d\n", getpid());
	while (open("/dev/null", O_RDONLY) >= 0 || errno != ENOSYS)
		usleep(2000);
	int before = effects();
	long got = listen_to(1, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	pid_t child = 0;
	if (got >= 0 && !(child = fork())) { /* we would answer CONTINUE to ourselves */
		struct seccomp_notif asked;
		for (;;) {
			memset(&asked, 0, sizeof asked);
			if (syscall(SYS_ioctl, got, SECCOMP_IOCTL_NOTIF_RECV, &asked))
				_exit(0);
			struct seccomp_notif_resp answer = {asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
			syscall(SYS_ioctl, got, SECCOMP_IOCTL_NOTIF_SEND, &answer);
		}
	}
	int after = effects();
	printf("orphan before=%d listener=%ld after=%d\n", before, got, after);
	if (child > 0)
		kill(child, SIGKILL);
	return 0;
}

int main(int argc, char **argv)
{
	return argc == 2 && !strcmp(argv[1], "orphan") ? orphan() : now();
}
