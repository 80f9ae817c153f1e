/* A timer interrupts a loop; the handler ends it. A fault is handled too. */
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static volatile int rung;
static volatile long turns;
static sigjmp_buf again;

static void on_alarm(int signal) {
    rung = signal;
    turns += 1000000000;
}

static void on_fault(int signal) {
    rung = -signal;
    siglongjmp(again, 1);
}

int main(void) {
    struct itimerval soon = {{0, 0}, {0, 20000}};
    signal(SIGALRM, on_alarm);
    signal(SIGSEGV, on_fault);
    setitimer(ITIMER_REAL, &soon, 0);
    while (!rung)
        turns++;
    if (!sigsetjmp(again, 1))
        *(volatile int *)8 = 1;
    return rung == -SIGSEGV ? 0 : 1;
}
