// A loop without calls, in a program that does not end when it is asked to.
#include <signal.h>
#include <stdio.h>

int main(void) {
    signal(SIGTERM, SIG_IGN);
    volatile int on = 1;
    while (on)
        ;
    puts("done");
    return 0;
}
