// Control transfers of every kind: recursion, tables, function pointers, computed goto, longjmp, coroutines, odd returns.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

__attribute__((noinline)) static long ackermann(long m, long n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__attribute__((noinline)) static int table(int x) {
    switch (x % 12) {
    case 0: return x + 3;
    case 1: return x * 5;
    case 2: return x ^ 7;
    case 3: return x - 11;
    case 4: return x << 2;
    case 5: return x >> 1;
    case 6: return ~x;
    case 7: return -x;
    case 8: return x | 9;
    case 9: return x & 0xff;
    case 10: return x / 3;
    default: return x % 7;
    }
}

static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }
static int (*volatile operations[])(int, int) = {add, sub, mul};

static int interpreter(const unsigned char *code) {
    static void *labels[] = {&&push, &&plus, &&times, &&dup, &&loop, &&halt};
    int stack[32], sp = 0, pc = 0, rounds = 0;
#define NEXT goto *labels[code[pc++]]
    NEXT;
push: stack[sp++] = code[pc++]; NEXT;
plus: sp--; stack[sp - 1] += stack[sp]; NEXT;
times: sp--; stack[sp - 1] = stack[sp - 1] * stack[sp] % 10007; NEXT;
dup: stack[sp] = stack[sp - 1]; sp++; NEXT;
loop: if (++rounds < 5000) pc = 2; NEXT;
halt: return stack[sp - 1];
}

static jmp_buf unwind;
__attribute__((noinline)) static void deep(int n) {
    volatile char frame[64];
    frame[0] = (char)n;
    if (n == 0) longjmp(unwind, 42);
    if (n > 0) deep(n - 1);
    frame[1] = frame[0];
}

static ucontext_t main_context, coroutine[2];
static char stacks[2][65536];
static int produced[40], made;

static void produce(int which) {
    for (int i = 0; i < 20; i++) {
        produced[made++] = which * 100 + i;
        swapcontext(&coroutine[which], i == 19 ? &main_context : &coroutine[1 - which]);
    }
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void) {
    printf("ackermann %ld\n", ackermann(2, 300));
    long sum = 0;
    for (int i = 0; i < 20000; i++) sum = sum * 31 % 1000003 + table(i) + operations[i % 3](i, 3);
    printf("tables %ld\n", sum);
    const unsigned char program[] = {0, 7, 3, 2, 0, 3, 1, 4, 5};
    printf("interpreter %d\n", interpreter(program));
    int r = setjmp(unwind);
    if (r == 0) deep(1000);
    printf("longjmp %d\n", r);
    for (int i = 0; i < 2; i++) {
        getcontext(&coroutine[i]);
        coroutine[i].uc_stack.ss_sp = stacks[i];
        coroutine[i].uc_stack.ss_size = sizeof stacks[i];
        coroutine[i].uc_link = &main_context;
        makecontext(&coroutine[i], (void (*)(void))produce, 1, i);
    }
    swapcontext(&main_context, &coroutine[0]);
    for (int i = 0; i < made; i++) sum = sum * 31 % 1000003 + produced[i];
    printf("coroutines %d %ld\n", made, sum);
    int values[1000];
    for (int i = 0; i < 1000; i++) values[i] = (i * 7919) % 1009;
    qsort(values, 1000, sizeof *values, compare);
    printf("qsort %d %d %d\n", values[0], values[500], values[999]);
    // Returns that do not match a call, and calls that never return.
    uint64_t x = 0;
    __asm__ volatile("leaq 1f(%%rip), %%rax\npushq %%rax\nret\nud2\n1: addq $5, %0\n"
                     "call 2f\nud2\n2: addq $8, %%rsp\naddq $6, %0\n"
                     "leaq 3f(%%rip), %%rax\npushq $77\npushq %%rax\nret $8\nud2\n3: addq $7, %0"
                     : "+r"(x) : : "rax", "memory", "cc");
    printf("odd returns %lu\n", x);
    return 0;
}
