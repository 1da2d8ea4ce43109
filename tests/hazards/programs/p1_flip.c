/* P1: one thread changes a path between an allowed and a forbidden object as fast as it can, another passes it to
 * the kernel. Prints how often each object was reached.
 *   p1_flip CALL TRIES ALLOWED FORBIDDEN     CALL: read full write truncate chmod unlink rename onto
 * `full` is read with one free descriptor, which a third thread takes and gives back all the time (P13).
 * The two names differ in one letter, so that no third one is ever seen.
 * For calls that answer no descriptor the test looks at the forbidden object itself afterwards. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];
static size_t where;
static char letters[2];
static volatile int stop;

static void *flip(void *unused)
{
	while (!stop) {
		((volatile char *)path)[where] = letters[0];
		((volatile char *)path)[where] = letters[1];
	}
	return unused;
}

static void *fill(void *unused)
{
	while (!stop)
		close(dup(0));
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	const char *call = argv[1];
	long tries = atol(argv[2]);
	strcpy(path, argv[3]);
	while (argv[3][where] == argv[4][where])
		where++;
	if (strcmp(argv[3] + where + 1, argv[4] + where + 1))
		return 2;
	letters[0] = argv[3][where];
	letters[1] = argv[4][where];
	struct stat allowed, forbidden;
	if (stat(argv[3], &allowed) || stat(argv[4], &forbidden))
		return 3;
	pthread_t thread;
	pthread_create(&thread, NULL, flip, NULL);
	int full = !strcmp(call, "full");
	pthread_t filler;
	if (full) {
		struct rlimit limit = {4, 4};
		setrlimit(RLIMIT_NOFILE, &limit);
		pthread_create(&filler, NULL, fill, NULL);
	}
	long done = 0, refused = 0, reached = 0, other = 0;
	char spare[4200];
	snprintf(spare, sizeof spare, "%s.spare", argv[3]);
	for (long i = 0; i < tries || ((done < 20 || refused < 20) && i < tries * 100); i++) { /* on until it was a race */
		int result;
		if (full || !strcmp(call, "read") || !strcmp(call, "write")) {
			result = open(path, !strcmp(call, "write") ? O_WRONLY : O_RDONLY);
			if (result >= 0) {
				struct stat found;
				fstat(result, &found);
				if (found.st_ino == forbidden.st_ino && found.st_dev == forbidden.st_dev)
					reached++;
				else if (found.st_ino != allowed.st_ino)
					other++;
				close(result);
				result = 0;
			}
		} else if (!strcmp(call, "truncate"))
			result = truncate(path, 3);
		else if (!strcmp(call, "chmod"))
			result = chmod(path, 0604);
		else if (!strcmp(call, "unlink")) {
			result = unlink(path);
			close(open(argv[3], O_CREAT | O_WRONLY, 0600));
		} else if (!strcmp(call, "rename")) {
			result = rename(path, spare);
			if (!result && rename(spare, argv[3]))
				return 4;
		} else if (!strcmp(call, "onto")) {
			close(open(spare, O_CREAT | O_WRONLY, 0600));
			result = rename(spare, path);
		} else
			return 2;
		if (!result)
			done++;
		else if (errno == EACCES)
			refused++;
		else
			other++;
	}
	stop = 1;
	pthread_join(thread, NULL);
	if (full)
		pthread_join(filler, NULL);
	printf("done=%ld refused=%ld reached=%ld other=%ld\n", done, refused, reached, other);
	return 0;
}
