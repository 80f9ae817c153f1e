/* Two loops that end only when a counter is exactly right: past that moment they never end, one silent, one printing.
 * flags: -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fno-pie -no-pie */
#include "bare.h"

volatile uint64_t sum;

int run(void) {
    for (uint64_t i = 0; i != 1000; i++) sum += i;
    put_number(sum, 10);
    for (uint64_t i = 0; i != 700; i++) put_char((char)('a' + i % 26));
    put_char('\n');
    return 5;
}
