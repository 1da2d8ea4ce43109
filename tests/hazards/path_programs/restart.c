/* Opens a FIFO with a SA_RESTART handler in place, which says that it ran (hazard P74). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0)
        _exit(2);
}

static void handler(int number) {
    (void)number;
    say("handled\n");
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    char word[10] = "";
    sigaction(SIGUSR1, &action, NULL);
    say("up\n");
    int file = open("fifo", O_RDONLY);
    if (file < 0 || read(file, word, 4) != 4) {
        perror("open");
        return 1;
    }
    say(word);
    return 0;
}
