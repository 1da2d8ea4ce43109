/* PROCESSES x THREADS for SECONDS: opening, making, renaming, linking and removing, by names of their own and by names
 * that all share. Prints "warm" after a third of the time, and at the end what failed by names of one's own and by shared
 * ones: "made=N own=ERRNO,... shared=ERRNO,...". Then waits for the end of its input. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct { unsigned long made, own[140], shared[140]; } *tally;
static double deadline;
static int process;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void note(unsigned long *errors, int result)
{
	__atomic_add_fetch(&tally->made, 1, __ATOMIC_RELAXED);
	if (result < 0)
		__atomic_add_fetch(&errors[errno], 1, __ATOMIC_RELAXED);
}

static void use(unsigned long *errors, const char *path, int flags)
{
	char byte;
	int file = open(path, flags | O_CLOEXEC, 0644);
	note(errors, file);
	if (file < 0)
		return;
	if ((flags & O_ACCMODE) != O_RDONLY ? write(file, "x", 1) != 1 : read(file, &byte, 1) < 0)
		note(errors, -1);
	close(file);
}

static void *work(void *argument)
{
	long thread = (long)argument;
	char folder[64], file[128], moved[128], other[64], third[64];
	unsigned seed = process * 1000 + thread;
	snprintf(folder, sizeof folder, "p%d/t%ld", process, thread);
	snprintf(file, sizeof file, "%s/file", folder);
	snprintf(moved, sizeof moved, "%s/moved", folder);
	while (now() < deadline) {
		note(tally->own, mkdir(folder, 0755));
		use(tally->own, file, O_WRONLY | O_CREAT | O_EXCL);
		for (int i = 0; i < 8; i++)
			use(tally->own, i & 1 ? "/etc/passwd" : file, O_RDONLY);
		note(tally->own, rename(file, moved));
		note(tally->own, link(moved, file));
		use(tally->own, moved, O_WRONLY | O_TRUNC);
		note(tally->own, unlink(moved));
		note(tally->own, unlink(file));
		note(tally->own, rmdir(folder));
		snprintf(other, sizeof other, "shared/%d", rand_r(&seed) % 16);
		snprintf(third, sizeof third, "shared/%d", rand_r(&seed) % 16);
		use(tally->shared, other, O_WRONLY | O_CREAT);
		note(tally->shared, rename(other, third));
		use(tally->shared, other, O_RDONLY);
		note(tally->shared, unlink(third));
	}
	return NULL;
}

static void told(const char *name, const unsigned long *errors)
{
	printf(" %s=", name);
	for (int number = 1; number < 140; number++)
		if (errors[number])
			printf("%d,", number);
}

int main(int count, char **words)
{
	if (count != 4)
		errx(2, "PROCESSES THREADS SECONDS");
	int processes = atoi(words[1]), threads = atoi(words[2]);
	double start = now(), seconds = atof(words[3]);
	deadline = start + seconds;
	tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mkdir("shared", 0755);
	for (process = 0; process < processes; process++) {
		char folder[32];
		snprintf(folder, sizeof folder, "p%d", process);
		mkdir(folder, 0755);
		pid_t child = fork();
		if (child < 0)
			err(2, "fork");
		if (!child) {
			pthread_t running[threads];
			for (long i = 0; i < threads; i++)
				if (pthread_create(&running[i], NULL, work, (void *)i))
					err(2, "thread");
			for (int i = 0; i < threads; i++)
				pthread_join(running[i], NULL);
			_exit(0);
		}
	}
	while (now() < start + seconds / 3)
		usleep(10000);
	printf("warm\n");
	fflush(stdout);
	for (int status; wait(&status) > 0;)
		if (status)
			errx(2, "a child ended with %#x", status);
	printf("made=%lu", tally->made);
	told("own", tally->own);
	told("shared", tally->shared);
	printf("\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
