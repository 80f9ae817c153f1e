/* The ptrace half of the oracle: runs a program natively without address randomisation, and either steps through it
 * instruction by instruction (`trace`) or alters it once and lets it run on (`alter`).
 *
 * `start.h` starts the program, `through.h` steps through it, `change.h` alters it.
 * It decides nothing: it writes down raw machine states, and the Rust side decodes and judges them.
 * It is C because the full vector state (PTRACE_GETREGSET with NT_X86_XSTATE) is out of reach of safe Rust wrappers.
 *
 * stepper trace OUT RSP ENTRY LO HI PROGRAM ARGS...   records on stdout (format: `put_*` in through.h), guest stdout in file OUT
 *     the stack pointer at the entry is made equal to RSP modulo a page, by padding the environment
 * stepper alter RESULT BUDGET_MS ASLR ENTRY SITE N ACTION PROGRAM ARGS...
 *     ACTION: flip:TAKEN:FALL | skip:TO | reg:NUMBER:VALUE | mem:AT:HEXBYTES | none
 *     guest stdout is our stdout; RESULT gets one line
 * ENTRY, LO, HI, SITE, TAKEN, FALL, TO and AT are addresses as linked: the load bias is added here. All hexadecimal.
 *
 * Guarantee: in `trace` each completed instruction inside [LO, HI) or inside anonymous executable memory that the
 * program mapped is written exactly once, in the order of its thread, with the state before it.
 * A `rep` string instruction traps after every iteration, so it gives one record per iteration.
 * A faulting instruction is not completed and gives no record, only the signal.
 * Misses: what happens before ENTRY (the dynamic linker), and instructions outside the ranges. */
#include "start.h"

#include "change.h"
#include "through.h"

int main(int argc, char **argv) {
    if (argc > 7 && !strcmp(argv[1], "trace")) return trace(argv + 2);
    if (argc > 9 && !strcmp(argv[1], "alter")) return alter(argv + 2);
    fprintf(stderr, "stepper: see the head of stepper.c\n");
    return 98;
}
