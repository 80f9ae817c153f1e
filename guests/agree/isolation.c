// Wild loads, stores and jumps: each must do what the kernel says about its address and nothing else.
//
// The program reads its own /proc/self/maps and then touches addresses of several classes. An address that is not in
// the maps must fault with exactly that address; one that is must behave by its permissions. A store writes back the
// byte that is there. A jump to what is not executable must fault at its target. Only the number of surprises is printed, so the result does not depend on the layout.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct range { uint64_t from, to; int read, write, execute; };
static struct range ranges[4096];
static int count;

static sigjmp_buf again;
static volatile int signo, code;
static volatile uint64_t where;

static void handler(int s, siginfo_t *info, void *context) {
    (void)context;
    signo = s;
    code = info->si_code;
    where = (uint64_t)info->si_addr;
    siglongjmp(again, 1);
}

static void read_maps(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024], perms[8], path[600];
    count = 0;
    while (fgets(line, sizeof line, f) && count < 4096) {
        struct range *r = &ranges[count];
        path[0] = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %599[^\n]", &r->from, &r->to, perms, path) < 3) continue;
        r->read = perms[0] == 'r';
        r->write = perms[1] == 'w';
        r->execute = perms[2] == 'x';
        // The kernel's own pages have rules of their own.
        if (strstr(path, "[vvar") || strstr(path, "[vsyscall]") || strstr(path, "[vdso")) r->read = r->write = -1;
        count++;
    }
    fclose(f);
}

static const struct range *find(uint64_t a) {
    for (int i = 0; i < count; i++)
        if (a >= ranges[i].from && a < ranges[i].to) return &ranges[i];
    return NULL;
}

static uint64_t state = 0x2545f4914f6cdd1dULL;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int surprises;

// The stack may grow down to any address below it within its limit.
static int may_grow(uint64_t a) {
    int here;
    for (int i = 0; i < count; i++)
        if ((uint64_t)&here >= ranges[i].from && (uint64_t)&here < ranges[i].to && a < ranges[i].from &&
            a + (9 << 20) > ranges[i].from)
            return 1;
    return 0;
}

// Touches one byte; tells whether the outcome was the right one.
static void probe(uint64_t a, int store) {
    const struct range *volatile r = find(a);
    if (may_grow(a)) return;
    if (r && r->read < 0) return;
    int canonical = a < 1UL << 47, fault = 0;
    signo = 0;
    if (sigsetjmp(again, 1) == 0) {
        volatile unsigned char *p = (volatile unsigned char *)a;
        if (store) {
            if (r && r->write) {
                unsigned char old = *p;
                *p = old;
            } else
                *p = 0;
        } else
            (void)*p;
    } else
        fault = 1;
    int may = r && (store ? r->write : r->read);
    int right = may ? !fault
                    : fault && signo == SIGSEGV &&
                          (canonical ? where == a && code == (r ? SEGV_ACCERR : SEGV_MAPERR) : 1);
    if (!right) {
        surprises++;
        if (surprises <= 5)
            fprintf(stderr, "%s %#lx: mapped %d may %d, fault %d signal %d code %d at %#lx\n", store ? "store" : "load", a,
                    r != NULL, may, fault, signo, code, where);
    }
}

// Jumps, calls or returns to an address; tells whether that faulted as it should.
static void jump(uint64_t a, int how) {
    const struct range *volatile r = find(a);
    if (r && (r->execute || r->read < 0)) return;
    if (may_grow(a)) return;
    if (a >= 0xffffffffff600000 && a < 0xffffffffff601000) return;
    volatile int fault = 0;
    signo = 0;
    if (sigsetjmp(again, 1) == 0) {
        if (how == 0)
            ((void (*)(void))a)();
        else if (how == 1)
            __asm__ volatile("jmp *%0" : : "r"(a) : "memory");
        else
            __asm__ volatile("push %0\n\tret" : : "r"(a) : "memory");
    } else
        fault = 1;
    int canonical = a < 1UL << 47;
    int right = fault && signo == SIGSEGV &&
                (canonical ? where == a && code == (r ? SEGV_ACCERR : SEGV_MAPERR) : where == 0 && code == SI_KERNEL);
    if (!right) {
        surprises++;
        if (surprises <= 5)
            fprintf(stderr, "jump %#lx: mapped %d, fault %d signal %d code %d at %#lx\n", a, r != NULL, fault, signo, code,
                    where);
    }
}

static void jumps(const char *name, int n, uint64_t (*address)(void)) {
    surprises = 0;
    for (int i = 0; i < n; i++) jump(address(), (int)(next() % 3));
    printf("%s: %d jumps, %d surprises\n", name, n, surprises);
}

// Memory full of addresses of code, for jumps that are looked up in the wrong place.
static uint64_t *planted;
static const size_t PLANTED = 1 << 20;
static void victim(void) { surprises += 1000; }

static void plant(void) {
    planted = mmap((void *)0x600000000000, PLANTED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < PLANTED / 8; i++) planted[i] = (uint64_t)victim;
}

static void class(const char *name, int n, uint64_t (*address)(void)) {
    surprises = 0;
    for (int i = 0; i < n; i++) probe(address(), (int)(next() >> 60 & 1));
    printf("%s: %d probes, %d surprises\n", name, n, surprises);
}

static uint64_t bases[8];
static int heap_word;

static uint64_t any(void) { return next(); }
static uint64_t user(void) { return next() & 0x7fffffffffff; }
static uint64_t kernel(void) { return next() | 0xffff800000000000; }
static uint64_t low(void) { return next() & 0xffffffff; }
static uint64_t small(void) { return next() & 0xffff; }
static uint64_t truncated(void) { return (uint32_t)(bases[next() % 8] + next() % 65536); }
static uint64_t extended(void) { return (uint64_t)(int64_t)(int32_t)(bases[next() % 8] + next() % 65536); }
static uint64_t flipped(void) { return bases[next() % 8] ^ 1UL << next() % 47; }
static uint64_t beside(void) {
    const struct range *r = &ranges[next() % (uint64_t)count];
    return next() & 1 ? r->to + next() % 8192 : r->from - 1 - next() % 8192;
}

// So that what is a fixed distance away from the target holds code addresses.
static uint64_t planted_above(void) { return (uint64_t)planted + 0x80000000 + next() % PLANTED; }
static uint64_t planted_below(void) { return (uint64_t)planted - 0x80000000 + next() % PLANTED; }
static uint64_t planted_far(void) { return (uint64_t)planted - 0x562010000000 + next() % PLANTED; }
static uint64_t within_data(void) { return bases[next() % 4 + 1] + next() % 4096; }

int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGBUS, &sa, NULL);
    int local;
    char *heap = malloc(100), *big = malloc(1 << 20);
    bases[0] = (uint64_t)main;
    bases[1] = (uint64_t)&local;
    bases[2] = (uint64_t)heap;
    bases[3] = (uint64_t)big;
    bases[4] = (uint64_t)printf;
    bases[5] = (uint64_t)&heap_word;
    bases[6] = (uint64_t)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bases[7] = (uint64_t)stdout;
    setvbuf(stdout, NULL, _IOFBF, 4096);
    printf("start\n");
    fflush(stdout);
    plant();
    read_maps();
    class("any 64-bit address", 1000, any);
    class("user half", 5000, user);
    class("kernel half", 500, kernel);
    class("low 4 GiB", 1500, low);
    class("page 0 and its neighbours", 500, small);
    class("truncated to 32 bits", 2500, truncated);
    class("truncated and sign-extended", 500, extended);
    class("one bit flipped", 500, flipped);
    class("beside a mapping", 1000, beside);
    bases[4] = (uint64_t)&local;
    jumps("to any 64-bit address", 500, any);
    jumps("to the user half", 2000, user);
    jumps("to the low 4 GiB", 500, low);
    jumps("to page 0 and its neighbours", 500, small);
    jumps("to truncated addresses", 1000, truncated);
    jumps("to one bit flipped", 500, flipped);
    jumps("into data", 500, within_data);
    jumps("2 GiB above planted code addresses", 500, planted_above);
    jumps("2 GiB below planted code addresses", 500, planted_below);
    jumps("far from planted code addresses", 500, planted_far);
    free(heap);
    free(big);
    return 0;
}
