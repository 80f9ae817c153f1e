// What the kernel hands to a new program: arguments, environment, auxiliary vector.
// Prints only what does not depend on addresses or on the CPU.
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

extern char **environ;
extern void _start(void);

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int first_phdr(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    *(const ElfW(Phdr) **)out = info->dlpi_phdr;
    return 1;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("arg %s\n", argv[i]);
    int n = 0;
    while (environ[n]) n++;
    qsort(environ, n, sizeof *environ, compare);
    for (int i = 0; i < n; i++)
        if (strncmp(environ[i], "AGREE_", 6) == 0) printf("env %s\n", environ[i]);
    printf("page %lu clock %lu secure %lu\n", getauxval(AT_PAGESZ), getauxval(AT_CLKTCK), getauxval(AT_SECURE));
    printf("uid %d gid %d\n", getauxval(AT_UID) == getuid(), getauxval(AT_EGID) == getegid());
    const ElfW(Phdr) *phdr = NULL;
    dl_iterate_phdr(first_phdr, &phdr);
    printf("phdr %d entry %d phent %lu\n", (unsigned long)phdr == getauxval(AT_PHDR),
           getauxval(AT_ENTRY) == (unsigned long)_start, getauxval(AT_PHENT));
    const char *file = (const char *)getauxval(AT_EXECFN);
    printf("execfn ends with auxv %d\n", file && strcmp(file + strlen(file) - 4, "auxv") == 0);
    printf("platform %s\n", (const char *)getauxval(AT_PLATFORM));
    printf("random %d\n", getauxval(AT_RANDOM) != 0);
    printf("stack aligned %d\n", ((unsigned long)__builtin_frame_address(0) & 15) == 0);
    // Arguments, environment and auxiliary vector follow each other on the stack.
    printf("layout %d\n", (void *)environ == (void *)(argv + argc + 1) && argv[argc] == NULL);
    return 0;
}
