/* P2: processes that open files of their own while they are being killed.
 *   p2_storm killed COUNT    each child makes files named after its pid until it is killed at a random moment
 *   p2_storm reuse COUNT     children of two parents, in folders a and b, read `who` by a relative name; in a pid
 *                            namespace with a small pid_max their numbers come round all the time */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void own_files(void)
{
	char name[64], text[64];
	for (int i = 0;; i++) {
		snprintf(name, sizeof name, "own-%d-%d", getpid(), i % 4);
		int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
		if (file < 0)
			_exit(9);
		int length = snprintf(text, sizeof text, "%d\n", getpid());
		if (write(file, text, (size_t)length) != length)
			_exit(9);
		close(file);
		unlink(name);
	}
}

static int killed(int count)
{
	int wrong = 0;
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		if (!child)
			own_files();
		struct timespec wait = {0, (i * 7919 % 100) * 10000};
		nanosleep(&wait, NULL);
		kill(child, SIGKILL);
		int status;
		waitpid(child, &status, 0);
		if (!WIFSIGNALED(status))
			wrong++;
	}
	return wrong;
}

static int read_who(char expected)
{
	char found = 0;
	int file = open("who", O_RDONLY);
	if (file < 0)
		return errno == EMFILE ? 3 : 2;
	if (read(file, &found, 1) != 1 || found != expected)
		return 1;
	close(file);
	file = open("mine", O_CREAT | O_WRONLY | O_APPEND, 0600);
	if (file < 0 || write(file, &expected, 1) != 1)
		return 2;
	return 0;
}

static int reuse(int count)
{
	int wrong = 0, failed = 0;
	for (int side = 0; side < 2; side++) {
		if (fork())
			continue;
		if (chdir(side ? "b" : "a"))
			_exit(2);
		for (int i = 0; i < count; i++) {
			pid_t child = fork();
			if (!child)
				_exit(read_who(side ? 'b' : 'a'));
			int status;
			waitpid(child, &status, 0);
			if (status == 1 << 8)
				wrong++;
			else if (status)
				failed++;
		}
		_exit(wrong ? 1 : failed ? 2 : 0);
	}
	wrong = failed = 0;
	int status;
	while (wait(&status) > 0) {
		wrong += status == 1 << 8;
		failed += status && status != 1 << 8;
	}
	printf("wrong=%d failed=%d\n", wrong, failed);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "reuse"))
		return reuse(atoi(argv[2]));
	printf("wrong=%d\n", killed(atoi(argv[2])));
	return 0;
}
