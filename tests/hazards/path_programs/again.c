/* What must be free again at once after close(): hazard P72. Prints how often it was not.
 *
 *   again exec N      write a program, close it, execute it: ETXTBSY
 *   again lock N      lock, close, lock through another descriptor: EWOULDBLOCK
 *   again fifo N      the last writer closes: the reader must see the end, not EAGAIN
 *   again busy        open a file until killed
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(const char *what, int holds) {
    if (!holds) {
        perror(what);
        exit(2);
    }
}

static int execute(void) {
    static char image[1 << 16];
    static ssize_t size;
    if (!size) {
        int source = open("/proc/self/exe", O_RDONLY);
        size = read(source, image, sizeof image);
        need("read", size > 0);
        close(source);
    }
    unlink("program");
    int made = open("program", O_CREAT | O_WRONLY | O_TRUNC, 0755);
    need("program", made >= 0 && write(made, image, size) == size);
    close(made);
    int status;
    pid_t child = vfork();
    if (child == 0) {
        execl("./program", "program", "nothing", (char *)0);
        _exit(errno == ETXTBSY ? 77 : 78);
    }
    need("wait", waitpid(child, &status, 0) == child);
    need("exec", WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    return WEXITSTATUS(status) == 77;
}

static int lock(void) {
    int first = open("locked", O_CREAT | O_RDWR, 0644);
    need("lock", first >= 0 && flock(first, LOCK_EX) == 0);
    close(first);
    int second = open("locked", O_RDWR);
    need("open", second >= 0);
    int missed = flock(second, LOCK_EX | LOCK_NB);
    need("flock", missed == 0 || errno == EWOULDBLOCK);
    close(second);
    return missed != 0;
}

static int fifo(void) {
    static int reader = -1;
    char byte;
    if (reader < 0) {
        need("mkfifo", mkfifo("fifo", 0600) == 0);
        reader = open("fifo", O_RDONLY | O_NONBLOCK);
        need("reader", reader >= 0);
    }
    int writer = open("fifo", O_WRONLY);
    need("writer", writer >= 0);
    close(writer);
    ssize_t size = read(reader, &byte, 1);
    need("read", size == 0 || errno == EAGAIN);
    return size != 0;
}

int main(int count, char **words) {
    int missed = 0;
    if (count > 1 && !strcmp(words[1], "nothing"))
        return 0;
    if (count > 1 && !strcmp(words[1], "busy"))
        for (;;)
            close(open("/etc/passwd", O_RDONLY));
    need("usage", count == 3);
    for (int left = atoi(words[2]); left > 0; left--)
        missed += !strcmp(words[1], "exec") ? execute() : !strcmp(words[1], "lock") ? lock() : fifo();
    printf("%d\n", missed);
    return 0;
}
