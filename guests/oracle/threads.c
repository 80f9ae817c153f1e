/* Threads that hand over to each other in a fixed order, then run side by side between barriers: in any schedule each
 * thread's own stream is the same, because every wait for another thread lies inside the C library
 * and no function is bound by whoever calls it first.
 * flags: -O1 -pthread -Wl,-z,now */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#define THREADS 4
#define ROUNDS 12
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake[THREADS + 1];
static pthread_barrier_t barrier;
static sem_t go[THREADS];
static unsigned long shared = 1, sums[THREADS];
static __thread unsigned long own;

typedef struct {
    int me;
    unsigned long result;
    int data[64];
} Job;

/* Whoever runs holds the lock and signals one that is already waiting, so no wait needs a loop around it. */
static void hand_over(int from, int to) {
    pthread_cond_signal(&wake[to]);
    pthread_cond_wait(&wake[from], &lock);
}

static void crunch(Job *j) {
    for (int i = 0; i < 64; i++) {
        j->data[i] = j->data[i] * 5 + j->me + i;
        own += (unsigned long)j->data[i] & 0xff;
    }
}

static void *work(void *p) {
    Job *j = p;
    int next = (j->me + 1) % THREADS;
    pthread_mutex_lock(&lock);
    hand_over(j->me, THREADS);
    for (int r = 0; r < ROUNDS; r++) {
        crunch(j);
        shared = shared * 31 + (unsigned long)j->me;
        own ^= shared;
        if (r + 1 < ROUNDS) hand_over(j->me, next);
    }
    pthread_cond_signal(&wake[j->me + 1]);
    pthread_mutex_unlock(&lock);
    for (int r = 0; r < 3; r++) {
        pthread_barrier_wait(&barrier);
        sums[j->me] += own;
        pthread_barrier_wait(&barrier);
        own += sums[next];
        crunch(j);
    }
    sem_wait(&go[j->me]);
    shared = shared * 17 + own;
    if (j->me > 0) sem_post(&go[j->me - 1]);
    j->result = own;
    return j;
}

/* Never beside anyone: created and joined one at a time. */
static void *alone(void *p) {
    unsigned long x = (unsigned long)p;
    for (int i = 0; i < 100; i++) own = own * 7 + x + (unsigned long)i;
    pthread_exit((void *)own);
}

int main(void) {
    pthread_t t[THREADS];
    static Job jobs[THREADS];
    for (unsigned long k = 0; k < 3; k++) {
        void *r;
        pthread_create(&t[0], 0, alone, (void *)k);
        pthread_join(t[0], &r);
        printf("alone %lu %lx\n", k, (unsigned long)r);
    }
    for (int i = 0; i <= THREADS; i++) pthread_cond_init(&wake[i], 0);
    for (int i = 0; i < THREADS; i++) sem_init(&go[i], 0, 0);
    pthread_barrier_init(&barrier, 0, THREADS);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < THREADS; i++) {
        jobs[i].me = i;
        pthread_create(&t[i], 0, work, &jobs[i]);
        pthread_cond_wait(&wake[THREADS], &lock);
    }
    hand_over(THREADS, 0);
    pthread_mutex_unlock(&lock);
    sem_post(&go[THREADS - 1]);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0), printf("job %d %lx\n", i, jobs[i].result);
    printf("shared %lx\n", shared);
    return 0;
}
