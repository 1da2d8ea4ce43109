/* One side of a race about names, N times: what it reached is counted and printed (hazards P21 and P37).
 *
 *   race swap A B N          exchange two names
 *   race link NAME A B N     NAME is a link to A and to B in turn, replaced by rename
 *   race read PATH N TEXT    open and read: how often it opened, was refused, and found TEXT
 *   race VERB PATH N         VERB: write truncate create unlink mkdir chmod rename link
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int descriptor_of(const char *path, int flags) {
    int made = open(path, flags, 0644);
    if (made >= 0 && (flags & O_ACCMODE) != O_RDONLY && write(made, "evil", 4) != 4)
        exit(2);
    if (made >= 0)
        close(made);
    return made < 0 ? -1 : 0;
}

static int once(const char *verb, const char *path) {
    char other[4200];
    snprintf(other, sizeof other, "%s-2", path);
    if (!strcmp(verb, "write"))
        return descriptor_of(path, O_WRONLY);
    if (!strcmp(verb, "truncate"))
        return truncate(path, 0);
    if (!strcmp(verb, "create"))
        return descriptor_of(other, O_CREAT | O_RDWR);
    if (!strcmp(verb, "unlink"))
        return unlink(path);
    if (!strcmp(verb, "mkdir"))
        return mkdir(other, 0755);
    if (!strcmp(verb, "chmod"))
        return chmod(path, 0777);
    if (!strcmp(verb, "rename"))
        return rename(path, other);
    if (!strcmp(verb, "link"))
        return link(path, other);
    exit(3);
}

int main(int count, char **words) {
    int done = 0, refused = 0, found = 0, other = 0;
    if (count == 5 && !strcmp(words[1], "swap")) {
        for (int left = atoi(words[4]); left > 0; left--)
            renameat2(AT_FDCWD, words[2], AT_FDCWD, words[3], RENAME_EXCHANGE) ? other++ : done++;
    } else if (count == 6 && !strcmp(words[1], "link")) {
        char next[4200];
        snprintf(next, sizeof next, "%s-next", words[2]);
        unlink(next); /* of one that was ended half-way */
        for (int left = atoi(words[5]); left > 0; left--)
            symlink(words[3 + left % 2], next) || rename(next, words[2]) ? refused++ : done++;
    } else if (count == 5 && !strcmp(words[1], "read")) {
        for (int left = atoi(words[3]); left > 0; left--) {
            char text[100];
            int file = open(words[2], O_RDONLY);
            if (file < 0) {
                errno == EACCES ? refused++ : other++;
                continue;
            }
            ssize_t size = read(file, text, sizeof text - 1);
            text[size < 0 ? 0 : size] = 0;
            strstr(text, words[4]) ? found++ : done++;
            close(file);
        }
    } else if (count == 4) {
        for (int left = atoi(words[3]); left > 0; left--)
            if (once(words[1], words[2]) == 0)
                done++;
            else
                errno == EACCES ? refused++ : other++;
    } else
        return 3;
    printf("%d %d %d %d\n", done, refused, found, other);
    return 0;
}
