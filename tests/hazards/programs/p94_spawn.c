/* P94: posix_spawn makes a child that shares its parent's memory until it executes. The child opens its output by a
 * name in a buffer of the parent, then executes this same program again, which opens a name in the same buffer.
 *   p94_spawn COUNT      start under `setarch -R`, so that both buffers have one address */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char name[256];

static int child(const char *input)
{
	char text[256];
	strcpy(name, input);
	int file = open(name, O_RDONLY);
	if (file < 0)
		return 3;
	ssize_t size = read(file, text, sizeof text);
	return size > 0 && write(1, text, (size_t)size) == size ? 0 : 4;
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return child(argv[2]);
	int count = atoi(argv[1]), wrong = 0, failed = 0;
	for (int i = 0; i < count; i++) {
		char input[64], output[64], text[64], found[64] = "";
		snprintf(input, sizeof input, "in-%d", i);
		snprintf(output, sizeof output, "out-%d", i);
		snprintf(text, sizeof text, "text of %d", i);
		int file = open(input, O_CREAT | O_WRONLY, 0600);
		if (write(file, text, strlen(text)) < 0 || close(file))
			return 2;
		strcpy(name, output);
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_addopen(&actions, 1, name, O_CREAT | O_RDWR, 0600);
		char *words[] = {argv[0], "child", input, NULL};
		pid_t pid;
		if (posix_spawn(&pid, argv[0], &actions, NULL, words, environ))
			return 2;
		int status;
		waitpid(pid, &status, 0);
		posix_spawn_file_actions_destroy(&actions);
		file = open(output, O_RDONLY);
		if (read(file, found, sizeof found - 1) < 0)
			found[0] = 0;
		close(file);
		failed += status != 0;
		wrong += strcmp(found, text) != 0;
	}
	printf("wrong=%d failed=%d\n", wrong, failed);
	return 0;
}
