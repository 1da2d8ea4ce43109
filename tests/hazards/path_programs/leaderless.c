/* A thread whose process leader has exited: opens, creates and relative names go on (hazard P23). */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_t leader;

static void check(const char *what, int failed) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static void *follow(void *unused) {
    (void)unused;
    char state = 0, text[256];
    pthread_join(leader, NULL);
    do { /* until the leader is a zombie */
        snprintf(text, sizeof text, "/proc/self/task/%d/stat", getpid());
        int file = open(text, O_RDONLY);
        check(text, file < 0);
        ssize_t size = read(file, text, sizeof text - 1);
        check("read", size <= 0);
        text[size] = 0;
        state = strrchr(text, ')')[2];
        close(file);
    } while (state != 'Z');
    check("mkdir", mkdir("d", 0750));
    int made = open("d/f", O_CREAT | O_EXCL | O_RDWR, 0640);
    check("create", made < 0);
    check("chdir", chdir("d"));
    check("relative", open("f", O_RDONLY) < 0);
    check("chmod", fchmod(made, 0600));
    check("rename", rename("f", "g"));
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    check("openat", openat(directory, "g", O_WRONLY) < 0);
    snprintf(text, sizeof text, "/proc/thread-self/fd/%d", made);
    check(text, open(text, O_RDONLY) < 0);
    snprintf(text, sizeof text, "/proc/self/task/%ld/comm", syscall(SYS_gettid));
    check(text, open(text, O_WRONLY) < 0);
    check("unlink", unlink("g"));
    puts("created");
    exit(0);
}

int main(void) {
    pthread_t thread;
    leader = pthread_self();
    check("pthread_create", pthread_create(&thread, NULL, follow, NULL));
    pthread_exit(NULL);
}
