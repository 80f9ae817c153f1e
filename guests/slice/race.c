/* The second thread takes its last three numbered lines to be one step, but the first thread writes `level` in between.
   Semaphores only bring about that order. flags: -pthread */
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>

static volatile int level, given, copied, kept;
static sem_t first, second, third;

static void *filling(void *unused) {
    level = 5; /* 1 */
    copied = level; /* 2 */
    sem_post(&first);
    sem_wait(&second);
    volatile int spare = given; /* 3 */
    spare = spare - 2; /* 4 */
    volatile int more = 3 * level; /* 5 */
    level = more + 2; /* 6 */
    sem_post(&third);
    return unused;
}

static void *draining(void *unused) {
    sem_wait(&first);
    given = 2; /* 7 */
    volatile int sum = given + 1; /* 8 */
    sum = copied + sum; /* 9 */
    volatile int rest = 4 * given; /* 10 */
    if (rest > level) { /* 11 */
        sem_post(&second);
        sem_wait(&third);
        rest = rest - level; /* 12 */
        assert(rest > 0); /* 13 */
    }
    kept = sum;
    return unused;
}

int main(void) {
    sem_init(&first, 0, 0);
    sem_init(&second, 0, 0);
    sem_init(&third, 0, 0);
    pthread_t a, b;
    pthread_create(&a, 0, filling, 0);
    pthread_create(&b, 0, draining, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return 0;
}
