/* An assertion that fails under one order of two threads, which semaphores bring about; the shape of figure 5.4 of
   Y. Wang's thesis on DrDebug. */
#include <assert.h>
#include <pthread.h>
#include <semaphore.h>

volatile int x, y, z;
sem_t first, second, third;

static void *one(void *unused) {
    (void)unused;
    x = 5;
    z = x;
    sem_post(&first);
    sem_wait(&second);
    int w = y - 2;
    x = 3 * x + 2;
    sem_post(&third);
    return (void *)(long)w;
}

static void *two(void *unused) {
    (void)unused;
    sem_wait(&first);
    y = 2;
    int j = z + y + 1;
    int k = 4 * y;
    if (k > x) {
        sem_post(&second);
        sem_wait(&third);
        k = k - x;
        assert(k > 0);
    }
    return (void *)(long)(j + k);
}

int main(void) {
    pthread_t a, b;
    sem_init(&first, 0, 0);
    sem_init(&second, 0, 0);
    sem_init(&third, 0, 0);
    pthread_create(&a, 0, one, 0);
    pthread_create(&b, 0, two, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return 0;
}
