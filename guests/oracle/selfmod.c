/* Code that changes itself: constants, opcodes, the very next instruction, and its own loop, all without a system call.
 * flags: -O1 -Wl,-z,norelro */
#include <stdio.h>

/* The section is writable and executable and holds both functions and data between them, in the image itself. */
__asm__(".section .changing, \"awx\", @progbits\n"
        ".globl add_constant, flip_operation, next_instruction, own_loop, patch_ahead\n"
        "add_constant:\n lea 0x11223344(%rdi), %rax\n ret\n"
        /* add %rsi,%rdi becomes sub, xor, and; the store is a caller's */
        "flip_operation:\n add %rsi, %rdi\n mov %rdi, %rax\n ret\n"
        /* Stores the low byte of its argument into the immediate of the instruction right behind the store. */
        "next_instruction:\n movb %dil, 1f+1(%rip)\n1: mov $0x00, %al\n movzbl %al, %eax\n ret\n"
        /* The step of the loop grows each time round: the loop rewrites its own body. */
        "own_loop:\n xor %eax, %eax\n mov %edi, %ecx\n"
        "2: add $1, %eax\n incb 2b+2(%rip)\n dec %ecx\n jnz 2b\n movb $1, 2b+2(%rip)\n ret\n"
        /* Turns the jump ahead into two no-ops and back. */
        "patch_ahead:\n xor %eax, %eax\n test %edi, %edi\n jz 3f\n movw $0x9090, 4f(%rip)\n jmp 4f\n"
        "3: movw $0x03eb, 4f(%rip)\n"
        "4: jmp 5f\n add $7, %eax\n5: add $1, %eax\n ret\n"
        ".balign 64\n.globl changing_data\nchanging_data: .quad 0\n .previous\n");
extern unsigned char add_constant_[] __asm__("add_constant"), flip_[] __asm__("flip_operation");
extern long add_constant(long), flip_operation(long, long);
extern int next_instruction(int), own_loop(int), patch_ahead(int);
extern long changing_data;

int main(void) {
    long x = 1;
    for (int i = 0; i < 60; i++) {
        *(int *)(add_constant_ + 3) = i * 3;
        x = add_constant(x * 5) & 0xffffff;
        changing_data += x;
    }
    printf("constants %ld %ld\n", x, changing_data);
    static const unsigned char opcodes[] = {0x01, 0x29, 0x31, 0x21, 0x09};
    for (int i = 0; i < 60; i++) {
        flip_[1] = opcodes[i % 5];
        x = (flip_operation(x, i * 77) & 0xffffff) + 1;
    }
    printf("operations %ld\n", x);
    int sum = 0;
    for (int i = 0; i < 100; i++) sum = sum * 3 + next_instruction(i * 5 & 0xff);
    printf("next %d\n", sum);
    for (int i = 1; i < 15; i++) sum = sum * 3 + own_loop(i);
    printf("loop %d\n", sum);
    for (int i = 0; i < 40; i++) sum = sum * 3 + patch_ahead(i % 3);
    printf("ahead %d\n", sum);
    return 0;
}
