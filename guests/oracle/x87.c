/* x87: loads and stores of every format, environments, whole states, comparisons, long double arithmetic.
 * flags: -O1 -fno-builtin */
#include <stdio.h>
#include <string.h>

static unsigned char area[1024] __attribute__((aligned(64)));
static unsigned long sum = 7;
static void note(const void *p, unsigned n) {
    for (unsigned i = 0; i < n; i++) sum = sum * 31 + ((const unsigned char *)p)[i];
}

__attribute__((noinline)) static void formats(long double v, int i) {
    short s = (short)(i * 3);
    int w = i * 1000;
    long q = i * 1000000000l;
    float f = (float)i / 3;
    double d = (double)i / 7;
    unsigned char decimal[10];
    short control, status;
    __asm__ volatile("fildl %0; fiaddl %0; fistps %1" : "+m"(w), "=m"(s));
    __asm__ volatile("fildq %0; flds %1; faddp; fldl %2; fmulp; fldt %3; fsubp; fistpll %0" : "+m"(q) : "m"(f), "m"(d), "m"(v));
    __asm__ volatile("flds %0; fadds %0; fsts %0; fstps %0; fldl %1; fmull %1; fstl %1; fstpl %1" : "+m"(f), "+m"(d));
    __asm__ volatile("fildl %1; fbstp %0; fbld %0; fistps %2" : "=m"(decimal), "+m"(w), "=m"(s));
    __asm__ volatile("fnstcw %0; fldcw %0; fnstsw %1" : "=m"(control), "=m"(status));
    __asm__ volatile("fildl %0; fisttpl %0" : "+m"(w));
    note(&s, 2), note(&w, 4), note(&q, 8), note(&f, 4), note(&d, 8), note(decimal, 10), note(&control, 2);
}

__attribute__((noinline)) static void states(void) {
    /* The pointer fields of the environment hold code and data addresses, so only the stack part is summed. */
    __asm__ volatile("fld1; fldpi; fnstenv %0; fldenv %0; fnsave %1; frstor %1; fstp %%st(0); fstp %%st(0)" : "=m"(area), "=m"(*(char(*)[108])(area + 64)));
    note(area + 64 + 28, 80);
    __asm__ volatile("fld1; fldl2t; fxsave %0; fninit; fxrstor %0; fstp %%st(0); fstp %%st(0)" : "=m"(*(char(*)[512])(area + 512))::"memory");
    note(area + 512 + 32, 32);
    __asm__ volatile("stmxcsr %0; ldmxcsr %0" : "+m"(*(int *)area));
    __asm__ volatile("movq %0, %%mm0; paddb %0, %%mm0; movq %%mm0, %0; movntq %%mm0, %1; emms" : "+m"(*(long *)(area + 200)), "=m"(*(long *)(area + 208)));
    note(area + 200, 16);
}

__attribute__((noinline)) static long double series(int n) {
    long double x = 1, s = 0, table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 1; i <= n; i++) {
        x = -x * table[i % 8] / (long double)i;
        if (x > 1e-3L || x < -1e-3L) s += x;
        else s -= x * 2;
    }
    return s;
}

int main(void) {
    memset(area, 0, sizeof area);
    for (int i = 1; i < 20; i++) formats((long double)i / 11, i);
    for (int i = 0; i < 5; i++) states();
    long double s = series(150);
    note(&s, 10);
    printf("%lx %.6Lf\n", sum, s);
    return 0;
}
