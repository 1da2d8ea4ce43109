/* P1: one thread changes a path between an allowed and a forbidden object as fast as it can, another passes it to
 * the kernel. Prints how often each object was reached.
 *   p1_flip CALL TRIES ALLOWED FORBIDDEN     CALL: read write path-at truncate chmod unlink rename link symlink
 * For calls that answer no descriptor the test looks at the forbidden object itself afterwards. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[8192];
static char names[2][4096];
static volatile int stop;

static void *flip(void *unused)
{
	size_t size = strlen(names[0]) + 1;
	for (int turn = 0; !stop; turn = !turn)
		for (volatile size_t i = 0; i < size; i++)
			((volatile char *)path)[i] = names[turn][i];
	return unused;
}

/* Both names get the same length, so that a half-written one is a rare third name and never a longer one. */
static void pad(char *to, const char *name, size_t length)
{
	size_t missing = length - strlen(name);
	const char *last = strrchr(name, '/');
	size_t head = (size_t)(last - name) + 1;
	memcpy(to, name, head);
	memset(to + head, '/', missing);
	strcpy(to + head + missing, last + 1);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	const char *call = argv[1];
	long tries = atol(argv[2]);
	size_t length = strlen(argv[3]) > strlen(argv[4]) ? strlen(argv[3]) : strlen(argv[4]);
	pad(names[0], argv[3], length);
	pad(names[1], argv[4], length);
	strcpy(path, names[0]);
	struct stat allowed, forbidden;
	if (stat(argv[3], &allowed) || stat(argv[4], &forbidden))
		return 3;
	pthread_t thread;
	pthread_create(&thread, NULL, flip, NULL);
	long done = 0, refused = 0, reached = 0, other = 0;
	char spare[4200];
	snprintf(spare, sizeof spare, "%s.spare", argv[3]);
	for (long i = 0; i < tries; i++) {
		int result;
		if (!strcmp(call, "read") || !strcmp(call, "write")) {
			result = open(path, !strcmp(call, "read") ? O_RDONLY : O_WRONLY);
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
	printf("done=%ld refused=%ld reached=%ld other=%ld\n", done, refused, reached, other);
	return 0;
}
