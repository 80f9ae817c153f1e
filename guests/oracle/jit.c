/* Generated code: written into executable memory, run, rewritten in place, run again; also at a fixed low address.
 * flags: -O1 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef long (*Code)(long);
static unsigned char *at;
static void byte(int b) { *at++ = (unsigned char)b; }
static void word(int v) { memcpy(at, &v, 4), at += 4; }

/* f(x): rax = x; n times rax = rax * m + k; return */
static Code emit(unsigned char *base, int n, int m, int k) {
    at = base;
    byte(0x48), byte(0x89), byte(0xf8);               /* mov rax, rdi */
    byte(0xb9), word(n);                              /* mov ecx, n */
    unsigned char *loop = at;
    byte(0x48), byte(0x69), byte(0xc0), word(m);      /* imul rax, rax, m */
    byte(0x48), byte(0x05), word(k);                  /* add rax, k */
    byte(0x50), byte(0x58);                           /* push rax; pop rax */
    byte(0xff), byte(0xc9);                           /* dec ecx */
    byte(0x75), byte((int)(loop - at) - 1);           /* jnz loop */
    byte(0xc3);
    return (Code)base;
}

static long exercise(unsigned char *base) {
    long x = 1;
    for (int i = 1; i <= 30; i++) x = emit(base + (i % 3) * 64, i, i * 2 + 1, i)(x) & 0xffffff;
    /* Patch only the constant of existing code, with a plain store. */
    Code f = emit(base + 256, 5, 3, 7);
    for (int i = 0; i < 40; i++) {
        base[256 + 8 + 3] = (unsigned char)(i | 1);
        x = f(x) & 0xffffff;
    }
    return x;
}

int main(void) {
    unsigned char *anywhere = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("anywhere %ld\n", exercise(anywhere));
    unsigned char *fixed = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("fixed %d %ld\n", fixed == (unsigned char *)0x10000000, exercise(fixed));
    /* As careful JITs do it: writable, then executable, then writable again. */
    unsigned char *strict = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long x = 3;
    for (int i = 1; i < 12; i++) {
        mprotect(strict, 4096, PROT_READ | PROT_WRITE);
        Code f = emit(strict, i, 5, i);
        mprotect(strict, 4096, PROT_READ | PROT_EXEC);
        x = f(x) & 0xffffff;
    }
    printf("strict %ld\n", x);
    /* The same address with other contents after unmapping. */
    munmap(fixed, 4096);
    fixed = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("again %ld\n", emit(fixed, 9, 7, 2)(x));
    return 0;
}
