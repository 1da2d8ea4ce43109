/* P42: execve of a path in shared memory that another thread flips between two programs of one length.
   usage: p42_exec TRIES PATH LETTER LETTER: what PATH ends in alternates. Prints how many of them ran at all. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char *last;
static char first, second;

static void *flip(void *unused) {
    for (;;) {
        *last = first;
        *last = second;
    }
    return unused;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    char *path = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *arguments[] = {"x", "ran", NULL}, *environment[] = {NULL};
    strcpy(path, words[2]);
    last = path + strlen(path) - 1;
    first = *words[3], second = *words[4];
    pthread_t flipper;
    if (pthread_create(&flipper, NULL, flip, NULL)) return 3;
    int killed = 0;
    for (int i = atoi(words[1]); i > 0; i--) {
        pid_t child = fork();
        if (child == 0) {
            execve(path, arguments, environment);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == 9;
    }
    printf("killed %d\n", killed);
    return 0;
}
