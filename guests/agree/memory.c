// Address space calls: the results a program can see must be those of the kernel. The argument selects the part.
#define _GNU_SOURCE
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL

static void tell(const char *what, int ok) { printf("%s: %s\n", what, ok ? "yes" : "no"); }
static void error(const char *what, int failed) { printf("%s: %s\n", what, failed ? strerror(errno) : "no error"); }

static void mappings(void) {
    char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 16 * PAGE);
    munmap(p + 4 * PAGE, 4 * PAGE);
    char *q = mmap(p + 4 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    tell("a free place is given", q == p + 4 * PAGE);
    q = mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    error("a used place is not", q == MAP_FAILED);
    q = mmap(p + 5 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("a hint is taken", q == p + 5 * PAGE);
    q = mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    tell("fixed replaces", q == p && p[0] == 0 && p[PAGE] == 1);
    error("no length", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    error("bad descriptor", mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0) == MAP_FAILED);
    error("odd address", munmap(p + 1, PAGE));
    error("mprotect of a hole", mprotect(p + 6 * PAGE, PAGE, PROT_READ));
    error("mprotect to none and back", mprotect(p, PAGE, PROT_NONE) || mprotect(p, PAGE, PROT_READ));
    char *big = mmap(NULL, 1UL << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    tell("64 GiB reserved", big != MAP_FAILED);
    error("used in the middle", mprotect(big + (1UL << 35), PAGE, PROT_READ | PROT_WRITE));
    big[1UL << 35] = 5;
    tell("written", big[1UL << 35] == 5);
    munmap(big, 1UL << 36);
    error("everything", mmap(NULL, 1UL << 50, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    char *low = mmap((void *)0x20000000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    tell("a low place is free", low == (char *)0x20000000);
    low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    tell("MAP_32BIT is low", (uintptr_t)low < 0x80000000UL);
}

static void moves(void) {
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < 4; i++) p[i * PAGE] = (char)(i + 1);
    char *q = mremap(p, 4 * PAGE, 400 * PAGE, MREMAP_MAYMOVE);
    tell("grown with content", q != MAP_FAILED && q[0] == 1 && q[3 * PAGE] == 4 && q[399 * PAGE] == 0);
    char *place = mmap(NULL, 400 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(q, 400 * PAGE, 400 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    tell("moved to a fixed place", moved == place && moved[PAGE] == 2);
    error("the old place is gone", msync(q, PAGE, MS_ASYNC));
    moved = mremap(moved, 400 * PAGE, PAGE, 0);
    tell("shrunk in place", moved == place);
    unsigned char resident[4];
    error("mincore", mincore(moved, PAGE, resident));
    tell("resident", resident[0] & 1);
    moved[0] = 9;
    madvise(moved, PAGE, MADV_DONTNEED);
    tell("zero after MADV_DONTNEED", moved[0] == 0);
    error("bad advice", madvise(moved, PAGE, 9999));
    error("mlock", mlock(moved, PAGE));
}

static void breaks(void) {
    char *start = sbrk(0);
    char *p = sbrk(100000);
    tell("the break grew", p == start && (char *)sbrk(0) == start + 100000);
    memset(p, 7, 100000);
    sbrk(-50000);
    tell("the break shrank", (char *)sbrk(0) == start + 50000 && p[49999] == 7);
    tell("set exactly", brk(start + 4096 * 3 + 5) == 0 && (char *)sbrk(0) == start + 4096 * 3 + 5);
    sbrk(200000);
    tell("fresh memory is zero", start[150000] == 0);
    tell("too much", sbrk(1L << 46) == (void *)-1);
}

static void files(void) {
    int fd = open("mapped.bin", O_RDWR | O_CREAT, 0644);
    if (ftruncate(fd, 3 * (long)PAGE)) return;
    char *shared = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    strcpy(shared + PAGE, "through the mapping");
    char text[32] = "";
    if (pread(fd, text, 19, PAGE) != 19) return;
    printf("file says: %s\n", text);
    printf("private view says: %s\n", private);
    strcpy(private, "private");
    printf("shared view says: %s\n", shared + PAGE);
    if (pwrite(fd, "written", 7, 0) != 7) return;
    printf("shared view says: %.7s\n", shared);
    pid_t p = fork();
    if (p == 0) {
        strcpy(shared + 2 * PAGE, "from the child");
        strcpy(private, "child");
        _exit(0);
    }
    waitpid(p, NULL, 0);
    printf("after the child: %s, %s\n", shared + 2 * PAGE, private);
    error("msync", msync(shared, 3 * PAGE, MS_SYNC));
    int ro = open("mapped.bin", O_RDONLY);
    error("shared and writable from a read-only file", mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, ro, 0) == MAP_FAILED);
}

__attribute__((noinline)) static int depth(int n) {
    volatile char frame[1000];
    memset((char *)frame, n, sizeof frame);
    return n == 0 ? frame[5] : depth(n - 1) + (frame[999] == (char)n);
}

static void stack(void) {
    printf("recursion %d\n", depth(6000));
    char *p = alloca(4 << 20);
    for (int i = 0; i < 4 << 20; i += 4096) p[i] = (char)(i >> 12);
    printf("alloca %d\n", p[4096 * 700]);
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    printf("limit %ld\n", (long)limit.rlim_cur);
    // Writing far below the stack pointer but inside the limit also grows the stack.
    char *here = (char *)__builtin_frame_address(0);
    volatile char *far = here - (5 << 20) - 12345;
    *far = 3;
    printf("grown %d\n", *far);
}

static void allocator(void) {
    uint64_t state = 12345, sum = 0;
    enum { SLOTS = 500 };
    static char *slot[SLOTS];
    static size_t size[SLOTS];
    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned s = (state >> 33) % SLOTS;
        if (slot[s]) {
            sum += (unsigned char)slot[s][size[s] - 1];
            free(slot[s]);
            slot[s] = NULL;
        } else {
            size[s] = 1 + (state >> 40) % ((i % 100 == 0) ? 400000 : 3000);
            slot[s] = malloc(size[s]);
            memset(slot[s], i, size[s]);
        }
    }
    printf("sum %lu\n", sum);
    void *p = NULL;
    int r = posix_memalign(&p, 1 << 16, 1000);
    printf("aligned %d %d\n", r, (int)((uintptr_t)p & 0xffff));
    error("too much", malloc(1UL << 60) == NULL);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"mappings", mappings}, {"moves", moves}, {"breaks", breaks}, {"files", files}, {"stack", stack},
        {"allocator", allocator},
    };
    setvbuf(stdout, NULL, _IONBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "memory: no such part\n");
    return 2;
}
