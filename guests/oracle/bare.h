/* A C library of thirty lines for guests that must not depend on one: every instruction of such a program is its own,
 * its heap is a static array, and its stack holds nothing but what it puts there. */
#include <stddef.h>
#include <stdint.h>

static char out_buffer[4096];
static unsigned out_used;

__attribute__((noinline)) static long bare_syscall(long nr, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noinline)) static void flush(void) {
    bare_syscall(1, 1, (long)out_buffer, out_used);
    out_used = 0;
}
__attribute__((noinline)) static void put_char(char c) {
    if (out_used >= sizeof out_buffer) flush();
    out_buffer[out_used++] = c;
}
__attribute__((noinline)) static void put_text(const char *s) {
    while (*s) put_char(*s++);
}
__attribute__((noinline)) static void put_number(uint64_t v, unsigned base) {
    char digits[66];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[v % base];
    while (v /= base);
    while (n) put_char(digits[--n]);
}
__attribute__((noreturn)) static void leave(int status) {
    flush();
    for (;;) bare_syscall(231, status, 0, 0);
}
int run(void);
/* The kernel enters with an aligned stack and no return address; the call makes it look like any other function. */
__asm__(".globl _start\n_start: xor %ebp, %ebp\n call start_c\n hlt\n");
__attribute__((noreturn, used)) void start_c(void) { leave(run()); }

/* The compiler may call these for copies and clears that it does not want to write out. */
__attribute__((used)) void *memcpy(void *d, const void *s, size_t n) {
    char *p = d;
    const char *q = s;
    while (n--) {
        *p++ = *q++;
        __asm__ volatile("");
    }
    return d;
}
__attribute__((used)) void *memset(void *d, int c, size_t n) {
    char *p = d;
    while (n--) {
        *p++ = (char)c;
        __asm__ volatile("");
    }
    return d;
}
