/* Two processes share their working directory (CLONE_FS) without being threads: one changes it again and again, the
 * other opens a name relative to it, before and after. Prints how often that led to the file of the old directory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[65536];
static volatile int *turn;
static int rounds;

static int mover(void *unused)
{
    (void)unused;
    for (int i = 0; i < rounds; i++) {
        while (turn[0] != 2 * i)
            sched_yield();
        if (chdir(i & 1 ? "../d1" : i ? "../d0" : "d0"))
            _exit(1);
        turn[0] = 2 * i + 1;
        while (turn[0] == 2 * i + 1)
            sched_yield();
    }
    return 0;
}

int main(int count, char **arguments)
{
    rounds = count > 1 ? atoi(arguments[1]) : 100;
    turn = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) {
        char path[16];
        snprintf(path, sizeof path, "d%d", i);
        mkdir(path, 0755);
        snprintf(path, sizeof path, "d%d/f", i);
        int made = open(path, O_CREAT | O_WRONLY, 0644);
        if (made < 0 || write(made, i ? "1" : "0", 1) != 1)
            return 2;
        close(made);
    }
    int child = clone(mover, stack + sizeof stack, CLONE_FS | SIGCHLD, 0), wrong = 0;
    for (int i = 0; i < rounds; i++) {
        while (turn[0] != 2 * i + 1) {
            int early = open("f", O_RDONLY);
            if (early >= 0)
                close(early);
        }
        char got = '?';
        int file = open("f", O_RDONLY);
        if (file < 0 || read(file, &got, 1) != 1)
            return 3;
        close(file);
        wrong += got != (i & 1 ? '1' : '0');
        turn[0] = 2 * i + 2;
    }
    waitpid(child, 0, 0);
    printf("%d wrong\n", wrong);
    return 0;
}
