// Integer instructions with unusual flags or operands, string instructions, x87 and SSE control state.
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252ULL;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t digest;
static void mix(uint64_t v) { digest = (digest ^ v) * 0x9e3779b97f4a7c15ULL + (digest >> 29); }

#define FLAGS "pushfq\npopq %1\nandq $0x8d5, %1\n"
#define OP2(text)                                                                                                      \
    do {                                                                                                               \
        register uint64_t a __asm__("r8") = next();                                                                    \
        register uint64_t b __asm__("r9") = next();                                                                    \
        register uint64_t f __asm__("r10");                                                                            \
        __asm__ volatile(text "\n" FLAGS : "+r"(a), "=&r"(f) : "r"(b) : "cc", "rax", "rcx", "rdx", "memory");           \
        mix(a);                                                                                                        \
        mix(f);                                                                                                        \
    } while (0)

static void integers(void) {
    for (int i = 0; i < 500; i++) {
        OP2("addq %2, %0");
        OP2("stc\nadcq %2, %0");
        OP2("clc\nsbbl %k2, %k0");
        OP2("movb %b2, %%cl\nshlq %%cl, %0\nxorl %%eax, %%eax\ntestq %0, %0");
        OP2("movl $0, %%ecx\nstc\nshlq %%cl, %0");
        OP2("movl $1, %%ecx\nrclq %%cl, %0");
        OP2("movb %b2, %%cl\nrorw %%cl, %w0\ntestq %0, %0");
        OP2("btq %2, %0\ncmovc %2, %0");
        OP2("bswapq %0\ncmpq %2, %0");
        OP2("movq %2, %%rax\nlahf\nmovzbl %%ah, %%eax\naddq %%rax, %0");
        OP2("movq %2, %%rax\nsahf\nadcq $0, %0");
        OP2("pushq %2\nlock xaddq %0, (%%rsp)\npopq %%rax\nsubq %%rax, %0");
        OP2("popcntq %2, %0");
        OP2("crc32q %2, %0\ncmpq %2, %0");
        OP2("shldq $13, %2, %0\ntestq %0, %0");
        OP2("movl %k2, %%ecx\nandl $15, %%ecx\nincl %%ecx\n1: addq %2, %0\nloop 1b\ntestq %0, %0");
        OP2("movl %k2, %%ecx\nandl $1, %%ecx\njrcxz 1f\nnotq %0\n1: testq %0, %0");
        OP2("movl %k2, %%edx\nmovq %0, %%rax\nmulq %2\nmovq %%rdx, %0\ntestq %0, %0");
        OP2("movzbl %b2, %%eax\nadd $0x27, %%al\nlahf\nmovzbl %%ah, %%edx\naddq %%rdx, %0\ncmpb %%al, %%dl");
        OP2("call 1f\n1: popq %%rax\nleaq 1b(%%rip), %%rcx\nsubq %%rcx, %%rax\naddq %%rax, %0");
        OP2("enter $16, $0\nmovq %2, -8(%%rbp)\naddq -8(%%rbp), %0\nleave\ntestq %0, %0");
    }
    printf("integers %016lx\n", digest);
    uint64_t wide[2] __attribute__((aligned(16))) = {1, 2};
    uint64_t low = 1, high = 2;
    uint8_t ok;
    __asm__ volatile("lock cmpxchg16b %0\nsetz %1" : "+m"(wide), "=q"(ok), "+a"(low), "+d"(high) : "b"(7UL), "c"(9UL) : "cc");
    printf("cmpxchg16b %d %lu %lu\n", ok, wide[0], wide[1]);
    unsigned char table[256];
    for (int i = 0; i < 256; i++) table[i] = (unsigned char)(255 - i);
    uint64_t al = 10;
    __asm__ volatile("xlatb" : "+a"(al) : "b"(table) : "memory");
    printf("xlat %lu\n", al);
}

static void strings(void) {
    char a[300], b[300];
    digest = 0;
    for (int i = 0; i < 300; i++) a[i] = (char)(i * 7), b[i] = (char)(i * 7);
    b[200] = 1;
    for (int count = 0; count < 70; count += 7) {
        for (int back = 0; back < 2; back++) {
            char *si = back ? a + 250 : a, *di = back ? b + 250 : b;
            unsigned long cx = (unsigned long)count * 4;
            uint64_t f;
            if (back) __asm__ volatile("std");
            __asm__ volatile("xorl %%eax, %%eax\nrepe cmpsb\npushfq\npopq %3\nandq $0x8d5, %3\ncld"
                             : "+S"(si), "+D"(di), "+c"(cx), "=&r"(f) : : "rax", "cc", "memory");
            mix(cx), mix(f), mix((uint64_t)(si - a)), mix((uint64_t)(di - b));
            di = back ? a + 250 : a, cx = (unsigned long)count * 4;
            if (back) __asm__ volatile("std");
            __asm__ volatile("movb $0x46, %%al\nrepne scasb\npushfq\npopq %2\nandq $0x8d5, %2\ncld"
                             : "+D"(di), "+c"(cx), "=&r"(f) : : "rax", "cc", "memory");
            mix(cx), mix(f), mix((uint64_t)(di - a));
            char c[300];
            memset(c, 0, sizeof c);
            si = back ? a + 250 : a + 3, di = back ? c + 270 : c + 5, cx = (unsigned long)count / 2;
            if (back) __asm__ volatile("std");
            __asm__ volatile("rep movsl\ncld" : "+S"(si), "+D"(di), "+c"(cx) : : "memory");
            for (int i = 0; i < 300; i++) mix((unsigned char)c[i]);
            uint64_t ax = 0x1122334455667788;
            di = back ? c + 280 : c, cx = (unsigned long)count / 4;
            if (back) __asm__ volatile("std");
            __asm__ volatile("rep stosq\ncld" : "+D"(di), "+c"(cx) : "a"(ax) : "memory");
            for (int i = 0; i < 300; i++) mix((unsigned char)c[i]);
            si = a + 100, cx = (unsigned long)count;
            __asm__ volatile("rep lodsw" : "+S"(si), "+c"(cx), "+a"(ax) : : "memory");
            mix(ax);
        }
    }
    // Overlapping copy, byte by byte.
    memcpy(a, "abc", 3);
    char *si = a, *di = a + 3;
    unsigned long cx = 200;
    __asm__ volatile("rep movsb" : "+S"(si), "+D"(di), "+c"(cx) : : "memory");
    for (int i = 0; i < 203; i++) mix((unsigned char)a[i]);
    printf("strings %016lx\n", digest);
}

static void x87(void) {
    long double x = 0.1L, sum = 0;
    for (int i = 1; i < 200; i++) sum += sinl(x * i) * expl(-x * i) + logl(1 + x * i) / atanl(x * i) + powl(1.01L, i);
    printf("x87 %.18Lf\n", sum);
    double r;
    uint16_t cw, down;
    __asm__ volatile("fnstcw %0" : "=m"(cw));
    down = (uint16_t)((cw & ~0xc00) | 0x400);
    __asm__ volatile("fldcw %1\nfldl %2\nfrndint\nfstpl %0\nfldcw %3" : "=m"(r) : "m"(down), "m"((double){-1.5}), "m"(cw));
    printf("rounded down %.1f\n", r);
    unsigned char image[108], fx[512] __attribute__((aligned(16)));
    __asm__ volatile("fldpi\nfld1\nfnsave %0\nfrstor %0\nfaddp\nfstpl %1" : "=m"(image), "=m"(r));
    printf("fnsave and frstor %.15f\n", r);
    __asm__ volatile("fldl2e\nfxsave %0\nfstp %%st\nfxrstor %0\nfstpl %1\nfninit" : "=m"(fx), "=m"(r));
    printf("fxsave and fxrstor %.15f\n", r);
    uint64_t m;
    __asm__ volatile("movq %1, %%mm0\npaddb %%mm0, %%mm0\nmovq %%mm0, %0\nemms" : "=m"(m) : "m"((uint64_t){0x0102030405060708}));
    printf("mmx %016lx\n", m);
    int exponent;
    double mantissa = frexp(123.456, &exponent);
    printf("frexp %.6f %d fmod %.6f\n", mantissa, exponent, fmod(1e10, 0.7));
    for (int mode = 0; mode < 4; mode++) {
        int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
        fesetround(modes[mode]);
        volatile double a = 1, b = 3;
        printf("round %d: %.20f %.0f\n", mode, a / b, rint(2.5));
    }
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0, big = 1e308, one = 1;
    volatile double inf = one / zero, over = big * 10, nan = zero / zero;
    (void)inf, (void)over, (void)nan;
    printf("exceptions: div %d over %d invalid %d inexact %d\n", !!fetestexcept(FE_DIVBYZERO), !!fetestexcept(FE_OVERFLOW),
           !!fetestexcept(FE_INVALID), !!fetestexcept(FE_INEXACT));
}

static sigjmp_buf again;
static volatile int code;
static void on_fpe(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    code = info->si_code;
    siglongjmp(again, 1);
}

static void trapping(void) {
    struct sigaction sa = {.sa_sigaction = on_fpe, .sa_flags = SA_SIGINFO};
    sigaction(SIGFPE, &sa, NULL);
    feclearexcept(FE_ALL_EXCEPT);
    volatile double zero = 0, one = 1;
    if (!sigsetjmp(again, 1)) {
        feenableexcept(FE_DIVBYZERO);
        volatile double r = one / zero;
        (void)r;
        printf("not reached\n");
    }
    printf("SSE division by zero traps with code %d\n", code);
    code = 0;
    if (!sigsetjmp(again, 1)) {
        feenableexcept(FE_INVALID);
        volatile long double lz = 0, r;
        r = lz / lz;
        (void)r;
        __asm__ volatile("fwait");
        printf("not reached\n");
    }
    printf("x87 invalid operation traps with code %d\n", code);
}

int main(void) {
    integers();
    strings();
    x87();
    trapping();
    return 0;
}
