/* A prefix of many system calls and much memory, then a region that looks at all kinds of memory. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (256 << 10)

static unsigned char zeros[SIZE];
static unsigned char data[SIZE] = { 1, 2, 3 };
static const unsigned char constant[SIZE] = { 7, 8, 9 };
static unsigned char *heap, *plain, *shared, *again, *file, *closed, *sparse;
static double fraction = 1.5;

static uint64_t sum(const unsigned char *p, size_t n)
{
    uint64_t s = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        s = (s ^ p[i]) * 1099511628211u;
    return s;
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 16);
}

static void prefix(const char *self, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        struct stat st;
        if (i % 100 == 0)
            stat(self, &st);
        fraction = fraction * 1.000001 + (double)i;
    }
    heap = malloc(SIZE);
    fill(heap, SIZE, 1);
    fill(data + 5000, 3000, 2);
    fill(zeros + 9000, 20, 3);
    plain = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(plain + 4096 * 7, 5000, 4);
    shared = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(shared, 9000, 5);
    sparse = mmap(0, 64UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fill(sparse + (1UL << 30), 100, 6);
    int fd = open(self, O_RDONLY);
    file = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    fill(file + 5000, 10, 7);
    closed = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(closed, 8192, 8);
    mprotect(closed, 8192, PROT_NONE);
    printf("prefix %ld\n", rounds);
    fflush(stdout);
}

__attribute__((noinline)) void region(const unsigned char *stack)
{
    printf("stack %lx\n", sum(stack, 20000));
    printf("heap %lx data %lx zeros %lx constant %lx\n", sum(heap, SIZE), sum(data, SIZE), sum(zeros, SIZE),
           sum(constant, SIZE));
    printf("plain %lx shared %lx file %lx\n", sum(plain, SIZE), sum(shared, SIZE), sum(file, 16384));
    printf("sparse %lx\n", sum(sparse + (1UL << 30) - 4096, 3 * 4096));
    mprotect(closed, 8192, PROT_READ);
    printf("closed %lx fraction %.17g\n", sum(closed, 8192), fraction);
    free(malloc(100000));
    char line[100];
    printf("input %s", fgets(line, sizeof line, stdin) ? line : "none\n");
    fflush(stdout);
}

__attribute__((noinline)) void after(void)
{
    printf("after\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    unsigned char stack[20000];
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    fill(stack, sizeof stack, 9);
    prefix(argv[0], rounds);
    region(stack);
    after();
    if (argc > 2 && !strcmp(argv[2], "spin"))
        for (volatile long i = 0; i < 50000000; i++)
            ;
    return 7;
}
