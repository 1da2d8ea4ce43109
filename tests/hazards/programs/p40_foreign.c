/* P40: system calls by the doors that a filter for x86_64 alone forgets: i386 by int 0x80, and the x32 bit.
 * Prints `name=result` of each; every result must be -ENOSYS, and nothing may have happened. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long i386(long number, long a, long b, long c, long d)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d) : "memory", "r8", "r9", "r10", "r11");
	return (int)result;
}

static long x32(long number, long a, long b, long c, long d)
{
	long result = syscall(number | 0x40000000, a, b, c, d, 0, 0);
	return result < 0 ? -errno : result;
}

int main(void)
{
	char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (low == MAP_FAILED)
		return 2;
	strcpy(low, "there");
	strcpy(low + 100, "made");
	long there = (long)low, made = (long)(low + 100);
	printf("i386-getpid=%ld ", i386(20, 0, 0, 0, 0));
	printf("i386-open=%ld ", i386(5, made, O_CREAT | O_WRONLY, 0600, 0));
	printf("i386-read-open=%ld ", i386(5, there, O_RDONLY, 0, 0));
	printf("i386-openat=%ld ", i386(295, AT_FDCWD, made, O_CREAT | O_WRONLY, 0600));
	printf("i386-unlink=%ld ", i386(10, there, 0, 0, 0));
	printf("i386-rename=%ld ", i386(38, there, made, 0, 0));
	printf("i386-mkdir=%ld ", i386(39, made, 0700, 0, 0));
	printf("i386-chmod=%ld ", i386(15, there, 0777, 0, 0));
	printf("i386-truncate=%ld ", i386(92, there, 0, 0, 0));
	printf("i386-socketcall=%ld ", i386(102, 1, there, 0, 0));
	printf("i386-seccomp=%ld ", i386(354, 1, 8, there, 0));
	printf("x32-getpid=%ld ", x32(SYS_getpid, 0, 0, 0, 0));
	printf("x32-open=%ld ", x32(SYS_open, made, O_CREAT | O_WRONLY, 0600, 0));
	printf("x32-openat=%ld ", x32(SYS_openat, AT_FDCWD, made, O_CREAT | O_WRONLY, 0600));
	printf("x32-unlink=%ld ", x32(SYS_unlink, there, 0, 0, 0));
	printf("x32-rename=%ld ", x32(SYS_rename, there, made, 0, 0));
	printf("x32-ioctl=%ld ", x32(514, 0, 0x5412, there, 0));
	printf("x32-execve=%ld ", x32(520, there, 0, 0, 0));
	printf("beyond=%ld ", (long)(syscall(600, 0, 0, 0) < 0 ? -errno : 0));
	printf("negative=%ld\n", (long)(syscall(-5, 0, 0, 0) < 0 ? -errno : 0));
	return 0;
}
