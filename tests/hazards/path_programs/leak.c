/* Leaks one block: LeakSanitizer must find it at exit, which traces this process from a thread of its own (P79). */
#include <stdlib.h>

static void *volatile lost;

int main(void) {
    lost = malloc(4321);
    lost = 0;
    return 0;
}
