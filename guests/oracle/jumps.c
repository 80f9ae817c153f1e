/* setjmp and longjmp: out of deep calls, back into a loop, as a coroutine-like error path, and hand-made stack switches.
 * flags: -O1 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static jmp_buf env, stack[8];
static int level;
static volatile unsigned long sum;

static void dive(int n, int code) {
    volatile char frame[64];
    frame[n & 63] = (char)n;
    if (n == 0) longjmp(env, code);
    if (frame[n & 63]) dive(n - 1, code);
    sum += (unsigned long)frame[0];
}

#define TRY (setjmp(stack[level++]) == 0)
#define THROW(v) (level--, longjmp(stack[level], (v)))
static int parse(const char *s, int depth) {
    if (*s == '(') return parse(s + 1, depth + 1);
    if (*s == ')') {
        if (depth == 0) THROW(1);
        return parse(s + 1, depth - 1);
    }
    if (*s == '!') THROW(2);
    if (*s == 0) return depth;
    return parse(s + 1, depth);
}

/* A stack switch as coroutine libraries do it: push the kept registers, exchange rsp, pop them. */
void switch_stack(void **save, void *to);
__asm__(".globl switch_stack\nswitch_stack:\n"
        " push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        " mov %rsp, (%rdi); mov %rsi, %rsp\n"
        " pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n");
static void *main_rsp, *co_rsp;
static unsigned long co_stack[2048] __attribute__((aligned(16)));
static int co_value;
static void coroutine(void) {
    for (int i = 0;; i++) {
        co_value = co_value * 3 + i;
        switch_stack(&co_rsp, main_rsp);
    }
}

int main(void) {
    for (volatile int i = 1; i <= 10; i++) {
        int r = setjmp(env);
        if (r == 0) dive(i * 5, i);
        sum = sum * 7 + (unsigned long)r;
    }
    printf("dives %lu\n", sum);
    static const char *const inputs[] = {"a(b)c", "((x)", "a)b", "(((!)))", "", "plain"};
    for (volatile unsigned k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        if (TRY) {
            int d = parse(inputs[k], 0);
            level--;
            printf("%s depth %d\n", inputs[k], d);
        } else {
            printf("%s refused\n", inputs[k]);
        }
    }
    unsigned long *top = co_stack + 2048 - 2;
    *--top = (unsigned long)coroutine;
    top -= 6;
    co_rsp = top;
    for (int i = 0; i < 200; i++) {
        switch_stack(&main_rsp, co_rsp);
        co_value ^= i * 5 + 1;
    }
    printf("coroutine %d\n", co_value);
    return 0;
}
