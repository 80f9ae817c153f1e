// Code that changes: self-modifying code, generated code, remapped code. The argument selects the part.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(int);

// lea eax, [rdi + imm32]; ret
static size_t emit(unsigned char *p, int imm) {
    unsigned char code[] = {0x8d, 0x87, 0, 0, 0, 0, 0xc3};
    memcpy(code + 2, &imm, 4);
    memcpy(p, code, sizeof code);
    return sizeof code;
}

// One page that is writable and executable throughout: no system call tells that the code has changed.
static void rwx(void) {
    unsigned char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        emit(p, i * 3);
        sum = sum * 7 % 1000003 + ((function)p)(i);
    }
    printf("rewritten 200 times: %ld\n", sum);
    // Only the constant inside the instruction changes.
    for (int i = 0; i < 200; i++) {
        int imm = i * 5;
        memcpy(p + 2, &imm, 4);
        sum = sum * 7 % 1000003 + ((function)p)(i);
    }
    printf("patched 200 times: %ld\n", sum);
    // A function across a page boundary, of which only the second page changes.
    emit(p + 4096 - 3, 1);
    for (int i = 0; i < 50; i++) {
        p[4096] = (unsigned char)i;
        sum = sum * 7 % 1000003 + ((function)(p + 4096 - 3))(i);
    }
    printf("across a boundary: %ld\n", sum);
    // Data beside code on one page is written often.
    emit(p, 1000);
    volatile int *data = (volatile int *)(p + 2048);
    for (int i = 0; i < 20000; i++) {
        *data += i;
        if (i % 100 == 0) sum = sum * 7 % 1000003 + ((function)p)(*data);
    }
    printf("data beside code: %ld\n", sum);
    // A string instruction that writes code.
    unsigned char template[7];
    emit(template, 77);
    __asm__ volatile("rep movsb" : : "D"(p), "S"(template), "c"(7) : "memory");
    printf("copied by rep movs: %d\n", ((function)p)(1));
}

// Code that rewrites an instruction a few bytes ahead of itself, in the same straight line.
static void ahead(void) {
    unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // mov byte [rip+1], dil ; mov eax, imm32 (low byte replaced) ; ret
    unsigned char code[] = {0x40, 0x88, 0x3d, 1, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc3};
    memcpy(p, code, sizeof code);
    long sum = 0;
    for (int i = 0; i < 100; i++) sum = sum * 7 % 1000003 + ((function)p)(i + 100);
    printf("rewriting ahead: %ld\n", sum);
    // A loop that counts down by decreasing its own immediate.
    // loop: dec byte [rdi]; cmp byte [rdi], 0; jne loop; mov eax, imm32 (rdi points at its low byte); ret
    unsigned char loop[] = {0xfe, 0x0f, 0x80, 0x3f, 0x00, 0x75, 0xf9, 0xb8, 9, 0, 0, 0, 0xc3};
    memcpy(p + 64, loop, sizeof loop);
    p[64 + 8] = 50;
    int r = ((int (*)(unsigned char *))(p + 64))(p + 64 + 8);
    printf("loop that edits its own constant: %d\n", r);
}

// The usual way of a compiler at run time: write, then make executable.
static void jit(void) {
    unsigned char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    for (int round = 0; round < 20; round++) {
        size_t at = 0;
        unsigned char *entry[100];
        for (int i = 0; i < 100; i++) {
            entry[i] = p + at;
            at += emit(p + at, round * 1000 + i);
        }
        mprotect(p, 65536, PROT_READ | PROT_EXEC);
        for (int i = 0; i < 100; i++) sum = sum * 7 % 1000003 + ((function)entry[i])(i);
        mprotect(p, 65536, PROT_READ | PROT_WRITE);
    }
    printf("write then execute: %ld\n", sum);
    // The same address, unmapped and mapped again with other code.
    for (int i = 0; i < 30; i++) {
        munmap(p, 65536);
        unsigned char *q = mmap(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        emit(q, i);
        sum = sum * 7 % 1000003 + ((function)q)(i);
    }
    printf("mapped again: %ld\n", sum);
}

// Two views of one memory: written through one, executed through the other.
static void twice(void) {
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, 4096)) return;
    unsigned char *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *x = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    size_t at = 0;
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        size_t n = emit(w + at, i);
        sum = sum * 7 % 1000003 + ((function)(x + at))(i);
        at += n;
    }
    printf("two views, new code: %ld\n", sum);
    // A file read into executable memory.
    unsigned char bytes[16];
    unsigned char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    emit(p, 5);
    printf("before read: %d\n", ((function)p)(1));
    size_t n = emit(bytes, 500);
    lseek(fd, 0, SEEK_SET);
    if (write(fd, bytes, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) || read(fd, p, n) != (ssize_t)n) return;
    printf("after read: %d\n", ((function)p)(1));
    unsigned char *moved = mremap(p, 4096, 8192, MREMAP_MAYMOVE);
    printf("after mremap: %d\n", ((function)moved)(2));
}

// Nested functions of GNU C: their addresses are small pieces of code on the stack.
static int apply(int (*f)(int), int x) { return f(x); }

static void trampoline(void) {
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        int add(int x) { return x + i; }
        sum = sum * 7 % 1000003 + apply(add, i * 2);
    }
    printf("nested functions: %ld\n", sum);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"rwx", rwx}, {"ahead", ahead}, {"jit", jit}, {"twice", twice}, {"trampoline", trampoline},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "codegen: no such part\n");
    return 2;
}
