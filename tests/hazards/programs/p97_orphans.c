/* P97: processes whose parent has gone come to the supervisor, which must reap them while the command still runs.
 *   p97_orphans COUNT     half of them made by clone with no signal at their end, some killed; then waits for a line */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int count = atoi(argv[argc - 1]);
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		if (!child) {
			pid_t orphan = i % 2 ? fork() : (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
			if (!orphan && i % 5 == 0)
				kill(getpid(), SIGKILL);
			_exit(orphan < 0);
		}
		int status;
		if (waitpid(child, &status, 0) != child || status)
			return 2;
	}
	printf("made\n");
	fflush(stdout);
	getchar();
	return 0;
}
