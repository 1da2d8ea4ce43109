/* P17: one thread points a descriptor number now at an allowed, now at a forbidden object; another uses the number.
 *   p17_table CALL TRIES ALLOWED-DIR FORBIDDEN-DIR    in both folders lies x; CALL: create read unlink fchmod chmodat */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOT = 100 };
static int sources[2];
static volatile int stop;

static void *swap(void *unused)
{
	while (!stop) {
		dup2(sources[0], SLOT);
		dup2(sources[1], SLOT);
	}
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	const char *call = argv[1];
	int on_file = !strcmp(call, "fchmod");
	struct stat forbidden;
	char name[4200];
	for (int side = 0; side < 2; side++) {
		snprintf(name, sizeof name, on_file ? "%s/x" : "%s", argv[3 + side]);
		sources[side] = open(name, O_RDONLY);
		if (sources[side] < 0)
			return 3;
	}
	if (fstatat(AT_FDCWD, strcat(strcpy(name, argv[4]), "/x"), &forbidden, 0))
		return 3;
	dup2(sources[0], SLOT);
	pthread_t thread;
	pthread_create(&thread, NULL, swap, NULL);
	long done = 0, refused = 0, reached = 0, other = 0;
	long tries = atol(argv[2]);
	for (long i = 0; i < tries || ((done < 20 || refused < 20) && i < tries * 100); i++) { /* on until it was a race */
		int result;
		if (!strcmp(call, "create") || !strcmp(call, "read")) {
			result = openat(SLOT, "x", !strcmp(call, "read") ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0600);
			if (result >= 0) {
				struct stat found;
				fstat(result, &found);
				reached += found.st_ino == forbidden.st_ino && found.st_dev == forbidden.st_dev;
				close(result);
				result = 0;
			}
		} else if (!strcmp(call, "unlink")) {
			result = unlinkat(SLOT, "x", 0);
			close(openat(sources[0], "x", O_CREAT | O_WRONLY, 0600));
		} else if (!strcmp(call, "chmodat"))
			result = fchmodat(SLOT, "x", 0606, 0);
		else if (on_file)
			result = fchmod(SLOT, 0606);
		else
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
