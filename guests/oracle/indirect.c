/* Indirect control: switch tables, function tables, computed goto, callbacks from the C library, tail calls.
 * flags: -O2 -fno-plt */
#include <stdio.h>
#include <stdlib.h>

typedef int (*Op)(int, int);
static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }
static int xor_(int a, int b) { return a ^ b; }
static Op ops[] = {add, sub, mul, xor_};

__attribute__((noinline)) static int by_switch(int k, int x) {
    switch (k) {
    case 0: return x + 3;
    case 1: return x * 5;
    case 2: return x ^ 0x55;
    case 3: return -x;
    case 4: return x << 2;
    case 5: return x >> 1;
    case 6: return by_switch((k + 3) % 6, x + 1);
    case 7: return ~x;
    case 9: return x - 9;
    default: return x;
    }
}

__attribute__((noinline)) static int threaded(const unsigned char *code) {
    static void *const labels[] = {&&push, &&plus, &&times, &&dup, &&loop, &&halt};
    int stack[16] = {0}, *sp = stack, rounds = 0;
    const unsigned char *pc = code;
#define NEXT goto *labels[*pc++]
    NEXT;
push: *++sp = *pc++; NEXT;
plus: sp--; sp[0] += sp[1]; NEXT;
times: sp--; sp[0] *= sp[1]; NEXT;
dup: sp[1] = sp[0]; sp++; NEXT;
loop:
    if (++rounds < 150) pc = code + 2;
    NEXT;
halt: return *sp;
}

static int compares;
static int compare(const void *a, const void *b) {
    compares++;
    return *(const int *)a - *(const int *)b;
}

static int tail(int n, int acc);
static int (*volatile tail_pointer)(int, int) = tail;
__attribute__((noinline)) static int tail(int n, int acc) { return n == 0 ? acc : tail_pointer(n - 1, acc * 3 + n); }

int main(void) {
    int x = 1;
    for (int i = 0; i < 1500; i++) x = ops[(x ^ i) & 3](x, i) & 0xffff;
    printf("table %d\n", x);
    for (int i = 0; i < 1500; i++) x = by_switch((x ^ i) % 12u, x) & 0xfffff;
    printf("switch %d\n", x);
    static const unsigned char code[] = {0, 1, 0, 3, 3, 2, 1, 0, 7, 1, 4, 5};
    printf("threaded %d\n", threaded(code));
    int v[120];
    for (int i = 0; i < 120; i++) v[i] = (i * 7919) % 509;
    qsort(v, 120, sizeof *v, compare);
    printf("qsort %d %d %d\n", v[0], v[119], compares);
    printf("tail %d\n", tail(200, 1));
    return 0;
}
