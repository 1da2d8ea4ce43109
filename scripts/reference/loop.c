/* The micro benchmarks of scripts/bench: loops that time themselves, so that start-up is not counted.
 *
 *     loop open-hot FILE N       open and close one file N times                    prints: open NS
 *     loop open-cold DIR N       open and close DIR/0 ... DIR/N-1, each once         prints: open NS
 *     loop effects DIR N         create+write+close, rename, unlink of N files       prints: create NS, rename NS, unlink NS
 *     loop connect DIR N         connect to DIR/s and to a port of 127.0.0.1, N times    prints: unix NS, tcp NS
 *     loop spawn N               fork and exec /bin/true N times, one after another
 *     loop probe DIR FILES N P   the memory benchmark: 1,000 opens, N opens, P processes, P more; after each of the four
 *                                one line "stage PID" and a wait for one byte on standard input
 *
 * NS is nanoseconds per operation by CLOCK_MONOTONIC. A failing call ends it with one line and status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void die(const char *what) {
    fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static void report(const char *name, double start, long n) { printf("%s %.1f\n", name, (now() - start) / (double)n); }

static void open_close(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        die(path);
    close(fd);
}

static void open_numbered(const char *dir, long first, long n, long files) {
    char path[4096];
    for (long i = first; i < first + n; i++) {
        snprintf(path, sizeof path, "%s/%ld", dir, i % files);
        open_close(path);
    }
}

static void spawn(long n) {
    char *const argv[] = {"true", NULL};
    for (long i = 0; i < n; i++) {
        pid_t pid;
        int status;
        errno = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
        if (errno || waitpid(pid, &status, 0) == -1 || status != 0)
            die("/bin/true");
    }
}

static void effects(const char *dir, long n) {
    static const char text[64] = "sixty-four bytes of text\n";
    char path[4096], other[4096];
    double start = now();
    for (long i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/made%ld", dir, i);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd == -1 || write(fd, text, sizeof text) != sizeof text || close(fd) == -1)
            die(path);
    }
    report("create", start, n);
    start = now();
    for (long i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/made%ld", dir, i);
        snprintf(other, sizeof other, "%s/moved%ld", dir, i);
        if (rename(path, other) == -1)
            die(path);
    }
    report("rename", start, n);
    start = now();
    for (long i = 0; i < n; i++) {
        snprintf(other, sizeof other, "%s/moved%ld", dir, i);
        if (unlink(other) == -1)
            die(other);
    }
    report("unlink", start, n);
}

/* Connections to a server of our own; socket, accept and the closes are in the time, as they are natively. */
static void connections(const char *name, int family, struct sockaddr *address, socklen_t size, long n) {
    int server = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server == -1 || bind(server, address, size) == -1 || listen(server, 16) == -1)
        die(name);
    if (family == AF_INET && getsockname(server, address, &size) == -1)
        die(name);
    double start = now();
    for (long i = 0; i < n; i++) {
        int client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (client == -1 || connect(client, address, size) == -1)
            die(name);
        int accepted = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        if (accepted == -1)
            die(name);
        struct linger reset = {1, 0}; /* no port stays in TIME_WAIT */
        setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(client);
        close(accepted);
    }
    report(name, start, n);
    close(server);
}

static void connects(const char *dir, long n) {
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    snprintf(path.sun_path, sizeof path.sun_path, "%s/s", dir);
    connections("unix", AF_UNIX, (struct sockaddr *)&path, sizeof path, n);
    unlink(path.sun_path);
    connections("tcp", AF_INET, (struct sockaddr *)&port, sizeof port, n);
}

static void stage(void) {
    char byte;
    printf("stage %d\n", getpid());
    fflush(stdout);
    if (read(0, &byte, 1) != 1)
        exit(1);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    if (!strcmp(kind, "open-hot") && argc == 4) {
        long n = atol(argv[3]);
        open_close(argv[2]);
        double start = now();
        for (long i = 0; i < n; i++)
            open_close(argv[2]);
        report("open", start, n);
    } else if (!strcmp(kind, "open-cold") && argc == 4) {
        long n = atol(argv[3]);
        double start = now();
        open_numbered(argv[2], 0, n, n);
        report("open", start, n);
    } else if (!strcmp(kind, "effects") && argc == 4) {
        effects(argv[2], atol(argv[3]));
    } else if (!strcmp(kind, "connect") && argc == 4) {
        connects(argv[2], atol(argv[3]));
    } else if (!strcmp(kind, "spawn") && argc == 3) {
        spawn(atol(argv[2]));
    } else if (!strcmp(kind, "probe") && argc == 6) {
        long files = atol(argv[3]), n = atol(argv[4]);
        open_numbered(argv[2], 0, 1000, files);
        stage();
        open_numbered(argv[2], 1000, n, files);
        stage();
        for (int half = 0; half < 2; half++) {
            spawn(atol(argv[5]));
            stage();
        }
    } else {
        fprintf(stderr, "loop: bad arguments (the head of loop.c lists them)\n");
        return 1;
    }
    return 0;
}
