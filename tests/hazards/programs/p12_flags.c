/* P12: the flags of openat2 lie in memory. One thread flips them between O_PATH, which gives no data, and O_RDONLY.
 *   p12_flags TRIES PATH     prints how often data was read */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile struct open_how how;
static volatile int stop;

static void *flip(void *unused)
{
	while (!stop) {
		how.flags = O_PATH;
		how.flags = O_RDONLY;
	}
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	pthread_t thread;
	pthread_create(&thread, NULL, flip, NULL);
	long data = 0, path = 0, refused = 0, absent = 0, other = 0;
	char byte;
	long tries = atol(argv[1]);
	for (long i = 0; i < tries || ((absent < 20 || refused < 20) && i < tries * 100); i++) { /* on until it was a race */
		long file = syscall(SYS_openat2, AT_FDCWD, argv[2], &how, sizeof how);
		if (file >= 0) {
			if (read((int)file, &byte, 1) == 1)
				data++;
			else
				path++;
			close((int)file);
		} else if (errno == EACCES)
			refused++;
		else if (errno == ENOSYS)
			absent++;
		else
			other++;
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("data=%ld path=%ld refused=%ld absent=%ld other=%ld\n", data, path, refused, absent, other);
	return 0;
}
