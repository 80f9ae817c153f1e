// What /proc/self says must describe the program, not what runs it.
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t barrier;

static int tasks(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void *wait_twice(void *arg) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return arg;
}

static char file_of(const char *name, char *text, size_t size) {
    FILE *f = fopen(name, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return 0;
}

static void maps(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024], *heap = sbrk(0), exe[1024];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[len < 0 ? 0 : len] = 0;
    unsigned long last = 0, here = (unsigned long)maps, stack = (unsigned long)&line;
    int ordered = 1, code = 0, on_stack = 0, libc = 0, lines = 0, unknown = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char perms[8] = "", path[800] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %799[^\n]", &from, &to, perms, path) < 3) continue;
        lines++;
        ordered &= from >= last && to > from;
        last = to;
        if (here >= from && here < to) code = strcmp(perms, "r-xp") == 0 && strcmp(path, exe) == 0;
        if (stack >= from && stack < to) on_stack = strncmp(perms, "rw", 2) == 0 && strcmp(path, "[stack]") == 0;
        libc |= strstr(path, "libc.so") != NULL && strcmp(perms, "r-xp") == 0;
        // Every named file must be one that the program itself mapped.
        if (path[0] == '/' && !strstr(path, "libc.so") && !strstr(path, "ld-linux") && strcmp(path, exe)) unknown++;
    }
    fclose(f);
    (void)heap;
    printf("maps: ordered %d code %d stack %d libc %d unknown files %d\n", ordered, code, on_stack, libc, unknown);
}

// Is the page mapped, by maps and by the kernel?
static int listed(void *p) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024];
    int found = 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2) found |= (unsigned long)p >= from && (unsigned long)p < to;
    }
    fclose(f);
    return found;
}

int main(int argc, char **argv) {
    char text[4096];
    ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    printf("exe ends with %s\n", strrchr(text, '/') ? strrchr(text, '/') + 1 : text);
    snprintf(text + 2000, 2000, "/proc/%d/exe", getpid());
    n = readlink(text + 2000, text + 1000, 900);
    text[1000 + (n < 0 ? 0 : n)] = 0;
    printf("the same by pid: %d\n", strcmp(text, text + 1000) == 0);
    FILE *self = fopen("/proc/self/exe", "r");
    char magic[5] = "";
    printf("opens as a program: %d\n", self && fread(magic, 1, 4, self) == 4 && memcmp(magic, "\177ELF", 4) == 0);
    file_of("/proc/self/comm", text, sizeof text);
    printf("comm %s", text);
    prctl(PR_SET_NAME, "renamed");
    file_of("/proc/self/comm", text, sizeof text);
    printf("comm %s", text);
    file_of("/proc/self/cmdline", text, sizeof text);
    printf("cmdline second word %s, %d arguments\n", text + strlen(text) + 1, argc - 1);
    file_of("/proc/self/environ", text, sizeof text);
    printf("environ matches: %d\n", strcmp(text, *(argv + argc + 1)) == 0);
    maps();
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int before = listed(p);
    munmap(p, 4096);
    printf("a mapping is listed %d, then not %d\n", before, listed(p));
    pthread_t t[3];
    pthread_barrier_init(&barrier, NULL, 4);
    printf("tasks %d\n", tasks());
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, wait_twice, NULL);
    pthread_barrier_wait(&barrier);
    printf("tasks %d\n", tasks());
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(text, sizeof text, f))
        if (strncmp(text, "Threads:", 8) == 0 || strncmp(text, "Name:", 5) == 0 || strncmp(text, "TracerPid:", 10) == 0 ||
            strncmp(text, "SigCgt:", 7) == 0 || strncmp(text, "SigIgn:", 7) == 0 || strncmp(text, "SigBlk:", 7) == 0)
            printf("%s", text);
    fclose(f);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    printf("first thread's id is the process id: %d\n", syscall(SYS_gettid) == getpid());
    return 0;
}
