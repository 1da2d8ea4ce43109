/* P10: effects while signals arrive all the time. Each effect must happen exactly once, whatever is interrupted.
 *   p10_signals ROUNDS MICROSECONDS restart|handle     an interval timer with a handler, with or without SA_RESTART */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static volatile long signals;
static long twice, interrupted, lost, failed;

static void count(int number)
{
	(void)number;
	signals++;
}

static int exists(const char *name)
{
	struct stat found;
	return !lstat(name, &found);
}

/* `wrong` is the errno of a call that was carried out before and then issued again. `there` is what must hold after it. */
#define ONCE(expression, wrong, name, there)                                   \
	do {                                                                   \
		int again;                                                     \
		do {                                                           \
			again = 0;                                             \
			errno = 0;                                             \
			int result = (int)(expression);                        \
			if (result >= 0) {                                     \
				if (exists(name) != (there))                   \
					lost++;                                \
			} else if (errno == EINTR) {                           \
				interrupted++;                                 \
				if (exists(name) == (there)) /* done, and said to be not */ \
					twice++;                               \
				else                                           \
					again = 1;                             \
			} else if (errno == (wrong))                           \
				twice++;                                       \
			else                                                   \
				failed++;                                      \
		} while (again);                                               \
	} while (0)

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	long rounds = atol(argv[1]), interval = atol(argv[2]);
	int restart = !strcmp(argv[3], "restart");
	struct sigaction action = {.sa_handler = count, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval timer = {{0, interval}, {0, interval}};
	setitimer(ITIMER_REAL, &timer, NULL);
	char directory[64], file[64], moved[64], link_name[64];
	for (long i = 0; i < rounds; i++) {
		snprintf(directory, sizeof directory, "d%d-%ld", getpid(), i);
		snprintf(file, sizeof file, "f%d-%ld", getpid(), i);
		snprintf(moved, sizeof moved, "m%d-%ld", getpid(), i);
		snprintf(link_name, sizeof link_name, "l%d-%ld", getpid(), i);
		ONCE(mkdir(directory, 0700), EEXIST, directory, 1);
		int opened = -1;
		ONCE(opened = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600), EEXIST, file, 1);
		if (opened >= 0 && (write(opened, "x", 1) != 1 || close(opened)))
			failed++;
		ONCE(link(file, link_name), EEXIST, link_name, 1);
		ONCE(rename(file, moved), ENOENT, file, 0);
		ONCE(unlink(moved), ENOENT, moved, 0);
		ONCE(unlink(link_name), ENOENT, link_name, 0);
		ONCE(symlink("x", link_name), EEXIST, link_name, 1);
		ONCE(unlink(link_name), ENOENT, link_name, 0);
		ONCE(rmdir(directory), ENOENT, directory, 0);
	}
	memset(&timer, 0, sizeof timer);
	setitimer(ITIMER_REAL, &timer, NULL);
	printf("twice=%ld lost=%ld failed=%ld interrupted=%ld signals=%ld\n", twice, lost, failed, interrupted, signals);
	return 0;
}
