/* THREADS threads, each TURNS times: one effect of each kind on names of its own. Prints nothing; 1 when a call fails. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int turns;
static pthread_barrier_t barrier;

#define must(call) if ((call) < 0) { perror(#call); _exit(1); }

static void *work(void *argument)
{
    long me = (long)argument;
    char file[32], moved[32], folder[32], away[32], second[32], text[32];
    snprintf(file, sizeof file, "f%ld", me);
    snprintf(moved, sizeof moved, "m%ld", me);
    snprintf(folder, sizeof folder, "d%ld", me);
    snprintf(away, sizeof away, "a%ld", me);
    snprintf(second, sizeof second, "l%ld", me);
    snprintf(text, sizeof text, "s%ld", me);
    pthread_barrier_wait(&barrier);
    for (int turn = 0; turn < turns; turn++) {
        int made = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600);
        must(made);
        must(close(made));
        must(mkdir(folder, 0700));
        must(rename(file, moved));
        must(rename(folder, away));
        must(chmod(moved, 0640));
        must(link(moved, second));
        must(symlink(moved, text));
        must(unlink(second));
        must(unlink(text));
        must(unlink(moved));
        must(rmdir(away));
    }
    return NULL;
}

int main(int count, char **words)
{
    int threads = atoi(words[1]);
    turns = atoi(words[2]);
    pthread_t all[64];
    (void)count;
    pthread_barrier_init(&barrier, NULL, threads);
    for (long i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    return 0;
}
