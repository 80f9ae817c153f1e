/* A register machine that interprets three little programs, with checks that fail loudly: dispatch through a table.
 * flags: -O2 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie */
#include "bare.h"

enum { SET, MOVE, ADD, SUB, MUL, DIV, MOD, LOAD, STORE, LESS, EQUAL, JUMP, IF, CALL, RETURN, PRINT, HALT };
typedef struct { unsigned char op, a; short b, c; } Insn;
static int registers[16], memory[256], returns[8];
static long steps;

__attribute__((noinline, noreturn)) static void fail(const char *why, int pc) {
    put_text("machine: ");
    put_text(why);
    put_text(" at ");
    put_number((unsigned)pc, 10);
    put_char('\n');
    leave(70);
}

__attribute__((noinline)) static void interpret(const Insn *code, int length) {
    int pc = 0, rp = 0, *r = registers;
    for (;;) {
        if (pc < 0 || pc >= length) fail("no code", pc);
        if (++steps > 20000) fail("too long", pc);
        Insn i = code[pc++];
        if (i.a > 15) fail("no such register", pc);
        switch (i.op) {
        case SET: r[i.a] = i.b; break;
        case MOVE: r[i.a] = r[i.b & 15]; break;
        case ADD: r[i.a] = r[i.b & 15] + r[i.c & 15]; break;
        case SUB: r[i.a] = r[i.b & 15] - r[i.c & 15]; break;
        case MUL: r[i.a] = r[i.b & 15] * r[i.c & 15]; break;
        case DIV:
            if (r[i.c & 15] == 0) fail("division by zero", pc);
            r[i.a] = r[i.b & 15] / r[i.c & 15];
            break;
        case MOD:
            if (r[i.c & 15] == 0) fail("division by zero", pc);
            r[i.a] = r[i.b & 15] % r[i.c & 15];
            break;
        case LOAD:
            if ((unsigned)r[i.b & 15] > 255) fail("bad load", pc);
            r[i.a] = memory[r[i.b & 15]];
            break;
        case STORE:
            if ((unsigned)r[i.b & 15] > 255) fail("bad store", pc);
            memory[r[i.b & 15]] = r[i.a];
            break;
        case LESS: r[i.a] = r[i.b & 15] < r[i.c & 15]; break;
        case EQUAL: r[i.a] = r[i.b & 15] == r[i.c & 15]; break;
        case JUMP: pc = i.b; break;
        case IF:
            if (r[i.a]) pc = i.b;
            break;
        case CALL:
            if (rp > 7) fail("calls too deep", pc);
            returns[rp++] = pc;
            pc = i.b;
            break;
        case RETURN:
            if (rp == 0) return;
            pc = returns[--rp];
            break;
        case PRINT:
            put_number((unsigned)r[i.a], 10);
            put_char(i.b ? '\n' : ' ');
            break;
        case HALT: return;
        default: fail("unknown operation", pc);
        }
    }
}

/* Sieve of Eratosthenes up to 80. r0 = 1, r1 = limit, r2 = i, r3 = j. */
static const Insn sieve[] = {
    {SET, 0, 1, 0},  {SET, 1, 80, 0}, {SET, 2, 2, 0},
    /* 3 */ {LOAD, 4, 2, 0},  {IF, 4, 10, 0},  {PRINT, 2, 0, 0}, {MOVE, 3, 2, 0},
    /* 7 */ {STORE, 0, 3, 0}, {ADD, 3, 3, 2},  {LESS, 4, 3, 1},
    /* 10 falls through from a prime, is jumped to from a composite */ {IF, 4, 16, 0},
    /* 11 */ {ADD, 2, 2, 0},  {LESS, 4, 2, 1}, {IF, 4, 3, 0},
    /* 14 */ {PRINT, 1, 1, 0}, {HALT, 0, 0, 0},
    /* 16: composite or not finished? */ {LOAD, 5, 2, 0}, {LESS, 6, 3, 1}, {IF, 6, 7, 0}, {JUMP, 0, 11, 0}};
/* Collatz lengths of 1..20 through a subroutine at 11. r7 = n, r8 = x, r9 = count. */
static const Insn collatz[] = {
    {SET, 0, 1, 0},   {SET, 1, 21, 0},  {SET, 2, 2, 0},  {SET, 3, 3, 0}, {SET, 7, 1, 0},
    /* 5 */ {MOVE, 8, 7, 0},  {CALL, 0, 11, 0}, {PRINT, 9, 0, 0}, {ADD, 7, 7, 0}, {LESS, 4, 7, 1},
    /* 10 */ {IF, 4, 5, 0},
    /* 11: falls in once more at the end and then returns from the program */ {SET, 9, 0, 0},
    /* 12 */ {EQUAL, 4, 8, 0}, {IF, 4, 21, 0}, {ADD, 9, 9, 0}, {MOD, 4, 8, 2}, {IF, 4, 19, 0},
    /* 17 */ {DIV, 8, 8, 2},   {JUMP, 0, 12, 0},
    /* 19 */ {MUL, 8, 8, 3},   {JUMP, 0, 22, 0},
    /* 21 */ {RETURN, 0, 0, 0},
    /* 22 */ {ADD, 8, 8, 0},   {JUMP, 0, 12, 0}};
/* Fills memory with a linear congruence and sums it. */
static const Insn fill[] = {
    {SET, 0, 1, 0},   {SET, 1, 100, 0}, {SET, 2, 0, 0},  {SET, 3, 17, 0}, {SET, 5, 37, 0}, {SET, 6, 251, 0},
    /* 6 */ {MUL, 3, 3, 5},   {ADD, 3, 3, 2},   {MOD, 3, 3, 6},  {STORE, 3, 2, 0}, {ADD, 2, 2, 0}, {LESS, 4, 2, 1},
    /* 12 */ {IF, 4, 6, 0},   {SET, 9, 0, 0},
    /* 14 */ {SUB, 2, 2, 0},  {LOAD, 4, 2, 0},  {ADD, 9, 9, 4},  {IF, 2, 14, 0}, {PRINT, 9, 1, 0}, {HALT, 0, 0, 0}};

int run(void) {
    interpret(sieve, sizeof sieve / sizeof *sieve);
    interpret(collatz, sizeof collatz / sizeof *collatz);
    put_char('\n');
    interpret(fill, sizeof fill / sizeof *fill);
    put_number((unsigned long)steps, 10);
    put_char('\n');
    return registers[9] & 0x3f;
}
