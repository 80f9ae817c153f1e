/* Instructions with unusual memory operands: bit strings, locked forms, xlat, enter, addresses of 32 bits, fs and gs,
 * pushes of memory through rsp, loops on rcx, cmpxchg16b, direct stores, saved states.
 * flags: -O1 -mcx16 -mmovbe -mno-red-zone
 * needs: movbe xsave */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static unsigned long bits[64], sum = 3;
static unsigned char table[256], state[4096] __attribute__((aligned(64)));
static unsigned long pair[2] __attribute__((aligned(16)));
static void note(unsigned long v) { sum = (sum ^ v) * 1099511628211ul; }

static void bit_strings(long i) {
    unsigned char c1, c2, c3, c4;
    __asm__ volatile("btq %5, %4; setc %0; btsq %5, %4; setc %1; btrl %k6, %4; setc %2; btcw %w6, %4; setc %3"
                     : "=q"(c1), "=q"(c2), "=q"(c3), "=q"(c4), "+m"(bits[32])
                     : "r"(i * 37 - 900), "r"(i * 11 - 200) : "memory", "cc");
    __asm__ volatile("lock btsq %1, %0; btq $5, %0; lock btcl $3, %0" : "+m"(bits[32]) : "r"(i) : "memory", "cc");
    note((unsigned long)(c1 + c2 * 2 + c3 * 4 + c4 * 8));
}

static void locked(long i) {
    unsigned long a = (unsigned long)i, old = bits[2];
    __asm__ volatile("lock xaddq %0, %1" : "+r"(a), "+m"(bits[1])::"cc");
    __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(old), "+m"(bits[2]) : "r"((unsigned long)i * 3) : "cc");
    old = 12345;
    __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(old), "+m"(bits[2]) : "r"(7ul) : "cc");
    __asm__ volatile("xchgq %0, %1" : "+r"(a), "+m"(bits[3]));
    unsigned long lo = pair[0], hi = pair[1];
    __asm__ volatile("lock cmpxchg16b %2" : "+a"(lo), "+d"(hi), "+m"(pair) : "b"(lo + 1), "c"(hi + 2) : "cc", "memory");
    __asm__ volatile("cmpxchg8b %0" : "+m"(pair[1]) : "a"(1), "d"(2), "b"(3), "c"(4) : "cc", "memory");
    __asm__ volatile("lock incl %0; lock negl %0; lock notb %0; lock orl $8, %0" : "+m"(*(int *)&bits[4])::"cc");
    note(a), note(old), note(pair[0]);
}

static void stack_forms(long i) {
    unsigned long r;
    __asm__ volatile("sub $64, %%rsp; pushq %1; pushq 8(%%rsp); popq 16(%%rsp); pushw %w2; popw %w2; pushq $-5; popq %0; popq %0\n"
                     "add $64, %%rsp" : "=&r"(r) : "m"(bits[1]), "r"(i) : "memory", "cc");
    note(r);
    __asm__ volatile("pushq $0; pushq (%%rsp); popq (%%rsp); lea 8(%%rsp), %%rsp; enter $32, $0; movq $9, -8(%%rbp); leave\n"
                     "enter $16, $3; leave; pushfq; popfq; push %%fs; lea 8(%%rsp), %%rsp; call 1f; jmp 2f; 1: ret $0; 2:"
                     ::: "memory", "cc");
}

static void addresses(long i, unsigned char *low) {
    unsigned long r = 0, w = 0;
    __asm__ volatile("addr32 movl %k1, 4(%k0)\n addr32 addl %k1, (%k0,%k1,2)" ::"r"(low), "r"(i) : "memory", "cc");
    __asm__ volatile("addr32 rep stosb" : "+D"(low) : "a"(i), "c"(5) : "memory");
    __asm__ volatile("movq %%fs:0, %0" : "=r"(r));
    __asm__ volatile("movq %%fs:(%1), %0" : "=r"(w) : "r"(0x10l));
    note(r == w);
    unsigned char al = (unsigned char)i;
    __asm__ volatile("xlatb" : "+a"(al) : "b"(table));
    note(al);
    __asm__ volatile("movbeq %1, %0; movbel %k0, %1" : "=&r"(r), "+m"(bits[6]));
    __asm__ volatile("movnti %1, %0" : "=m"(bits[7]) : "r"(i));
    __asm__ volatile("test %2, %2; cmovz %1, %0" : "+r"(r) : "m"(bits[8]), "r"(i) : "cc");
    __asm__ volatile("leaq 100(%1,%1,4), %0; nopl 0x12345(%1); prefetcht0 (%1); prefetchw (%1)" : "=&r"(w) : "r"(i));
    note(r), note(w);
}

static void counted(long i) {
    unsigned long n = (unsigned long)i, r = 0;
    __asm__ volatile("jrcxz 2f; 1: add %%rcx, %0; loop 1b; 2: mov $4, %%ecx; 3: inc %0; cmp $300, %0; loopne 3b; jecxz 4f; inc %0; 4:"
                     : "+r"(r), "+c"(n)::"cc");
    note(r), note(n);
}

static void saved_states(void) {
    __asm__ volatile("fxsave (%0); fxrstor (%0)" ::"r"(state) : "memory");
    memset(state, 0, 1024);
    __asm__ volatile("xsave (%0); xrstor (%0)" ::"r"(state), "a"(3), "d"(0) : "memory");
    __asm__ volatile("sfence; lfence; mfence; clflush (%0)" ::"r"(state) : "memory");
}

int main(void) {
    for (int i = 0; i < 256; i++) table[i] = (unsigned char)(i * 13 + 1);
    unsigned char *low = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    for (long i = 0; i < 40; i++) {
        bit_strings(i), locked(i), stack_forms(i), addresses(i, low + i), counted(i);
        if (i % 8 == 0) saved_states();
    }
    for (int i = 0; i < 64; i++) note(bits[i]);
    printf("%016lx\n", sum);
    return 0;
}
