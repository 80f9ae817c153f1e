/* A little stack machine with a jump table, bit fields, function pointers, signals and long jumps. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PUSH, ADD, MUL, SWAP, DUP, CALL, JUMP, OUT, END };

struct packed {
    unsigned low : 5, middle : 11, high : 16;
    uint8_t tail[3];
};

static long stack[64];
static int top;
static jmp_buf back;
static volatile int noticed;

static long negated(long n) { return -n; }
static long halved(long n) { return n / 2; }
static long bits(long n) { return __builtin_popcountl(n) + (n < 0); }
static long (*const functions[])(long) = {negated, halved, bits};

static void notice(int signal) { noticed += signal; }

static void run(const int8_t *code) {
    for (int at = 0;;) {
        switch (code[at++]) {
        case PUSH: stack[top++] = code[at++]; break;
        case ADD: top--; stack[top - 1] += stack[top]; break;
        case MUL: top--; stack[top - 1] *= stack[top]; break;
        case SWAP: { long t = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = t; break; }
        case DUP: stack[top] = stack[top - 1]; top++; break;
        case CALL: stack[top - 1] = functions[code[at++]](stack[top - 1]); break;
        case JUMP: if (stack[top - 1] < code[at]) at = code[at + 1]; else at += 2; break;
        case OUT: printf("%ld ", stack[--top]); break;
        default: longjmp(back, top + 1);
        }
    }
}

int main(void) {
    static const int8_t code[] = {PUSH, 3, DUP, MUL, PUSH, 7, ADD, DUP, OUT, JUMP, 100, 2, CALL, 0, PUSH, 2, SWAP,
                                  CALL, 1, OUT, DUP, CALL, 2, ADD, OUT, END};
    signal(SIGUSR1, notice);
    raise(SIGUSR1);
    int left = setjmp(back);
    if (left == 0)
        run(code);
    struct packed p = {.low = 21, .middle = 1000, .high = left * 77};
    for (int i = 0; i < 3; i++)
        p.tail[i] = p.low ^ p.middle >> i * 3;
    raise(SIGUSR1);
    struct packed q = p;
    q.middle += q.tail[1];
    uint64_t word;
    memcpy(&word, &q, sizeof word);
    word = __builtin_bswap64(word) ^ (word << 13 | word >> 51);
    int8_t narrow = (int8_t)(word >> 9);
    printf("%d %d %016llx %d\n", left, noticed, (unsigned long long)word, narrow * q.high);
    return 0;
}
