// Threads: one part per way they wait for each other. The argument selects the part.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 4, ROUNDS = 2000 };
static pthread_t t[N];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long shared;

static void start(void *(*f)(void *)) {
    for (long i = 0; i < N; i++)
        if (pthread_create(&t[i], NULL, f, (void *)i)) abort();
}

static void join(void) {
    for (int i = 0; i < N; i++) pthread_join(t[i], NULL);
}

static void *add(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        long v = shared;
        if (i % 64 == 0) sched_yield();
        shared = v + 1;
        pthread_mutex_unlock(&lock);
    }
    return arg;
}

static void mutex(void) {
    start(add);
    join();
    printf("normal mutex: %ld\n", shared);
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &a);
    pthread_mutex_lock(&lock);
    printf("recursive again: %d\n", pthread_mutex_lock(&lock));
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&lock);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&lock, &a);
    pthread_mutex_lock(&lock);
    printf("errorcheck again: %s\n", strerror(pthread_mutex_lock(&lock)));
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    pthread_mutex_unlock(&lock);
    printf("unlock not owned: %s\n", strerror(pthread_mutex_unlock(&lock)));
}

static int turn;

static void *take_turns(void *arg) {
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&lock);
        while (turn % N != (long)arg) pthread_cond_wait(&changed, &lock);
        shared = shared * 31 % 1000003 + (long)arg;
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void cond(void) {
    start(take_turns);
    join();
    printf("turns %d digest %ld\n", turn, shared);
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_nsec += 30 * 1000 * 1000;
    if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    int r;
    do r = pthread_cond_timedwait(&changed, &lock, &deadline);
    while (r == 0);
    pthread_mutex_unlock(&lock);
    printf("timed wait: %s\n", strerror(r));
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_t mono;
    pthread_cond_init(&mono, &a);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    deadline = before;
    deadline.tv_sec += 0;
    deadline.tv_nsec += 20 * 1000 * 1000;
    if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
    pthread_mutex_lock(&lock);
    do r = pthread_cond_timedwait(&mono, &lock, &deadline);
    while (r == 0);
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long waited = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    printf("monotonic wait: %s, at least 20 ms: %d\n", strerror(r), waited >= 19);
}

static pthread_barrier_t barrier;
static atomic_int phase_sum[16], serial;

static void *phases(void *arg) {
    for (int p = 0; p < 16; p++) {
        atomic_fetch_add(&phase_sum[p], (int)(long)arg + 1);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) atomic_fetch_add(&serial, 1);
        if (atomic_load(&phase_sum[p]) != N * (N + 1) / 2) printf("phase %d is torn\n", p);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void barriers(void) {
    pthread_barrier_init(&barrier, NULL, N);
    start(phases);
    join();
    printf("barrier phases 16, serial threads %d\n", serial);
}

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static long pair[2];
static atomic_int torn;

static void *read_or_write(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        if ((i + (long)arg) % 8 == 0) {
            pthread_rwlock_wrlock(&rw);
            pair[0]++;
            if (i % 32 == 0) sched_yield();
            pair[1]++;
            pthread_rwlock_unlock(&rw);
        } else {
            pthread_rwlock_rdlock(&rw);
            if (pair[0] != pair[1]) torn++;
            pthread_rwlock_unlock(&rw);
        }
    }
    return NULL;
}

static void rwlock(void) {
    start(read_or_write);
    join();
    printf("rwlock: writes %ld torn %d\n", pair[0], torn);
    pthread_rwlock_rdlock(&rw);
    printf("trywrlock while read-locked: %s\n", strerror(pthread_rwlock_trywrlock(&rw)));
}

static pthread_mutex_t robust_lock;

static void *die_with_lock(void *arg) {
    pthread_mutex_lock(&robust_lock);
    return arg;
}

static void robust(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&robust_lock, &a);
    pthread_create(&t[0], NULL, die_with_lock, NULL);
    pthread_join(t[0], NULL);
    int r = pthread_mutex_lock(&robust_lock);
    printf("owner died: %s\n", strerror(r));
    printf("consistent: %d\n", pthread_mutex_consistent(&robust_lock));
    pthread_mutex_unlock(&robust_lock);
    printf("lock again: %d\n", pthread_mutex_lock(&robust_lock));
    pthread_mutex_unlock(&robust_lock);
    pthread_create(&t[0], NULL, die_with_lock, NULL);
    pthread_join(t[0], NULL);
    pthread_mutex_lock(&robust_lock);
    pthread_mutex_unlock(&robust_lock);
    printf("not made consistent: %s\n", strerror(pthread_mutex_lock(&robust_lock)));
}

static void pi(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&lock, &a);
    start(add);
    join();
    printf("priority-inheriting mutex: %ld\n", shared);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust_lock, &a);
    pthread_create(&t[0], NULL, die_with_lock, NULL);
    pthread_join(t[0], NULL);
    printf("robust and priority-inheriting: %s\n", strerror(pthread_mutex_lock(&robust_lock)));
    struct timespec past = {1, 0};
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_STALLED);
    pthread_mutex_init(&lock, &a);
    pthread_mutex_lock(&lock);
    printf("deadlock or time-out: %s\n", strerror(pthread_mutex_timedlock(&lock, &past)));
}

static atomic_int cleaned, started;

static void clean(void *arg) { atomic_fetch_add(&cleaned, (int)(long)arg); }

static void unlock(void *mutex) { pthread_mutex_unlock(mutex); }

static void *wait_forever(void *arg) {
    pthread_cleanup_push(clean, (void *)((long)arg + 1));
    started++;
    if ((long)arg == 0)
        pause();
    else if ((long)arg == 1)
        sleep(1000);
    else if ((long)arg == 2) {
        pthread_mutex_lock(&lock);
        pthread_cleanup_push(unlock, &lock);
        for (;;) pthread_cond_wait(&changed, &lock);
        pthread_cleanup_pop(0);
    } else {
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
        for (volatile long n = 0;;) n++;
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancel(void) {
    start(wait_forever);
    while (started < N) usleep(1000);
    int cancelled = 0;
    for (int i = 0; i < N; i++) {
        void *result;
        pthread_cancel(t[i]);
        pthread_join(t[i], &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled %d, cleaned up %d, mutex free: %d\n", cancelled, cleaned, pthread_mutex_trylock(&lock));
}

static __thread int local = 7;
static __thread char big_local[10000];
static pthread_key_t key;
static atomic_int destroyed;

static void destroy(void *v) { atomic_fetch_add(&destroyed, (int)(long)v); }

static void *use_local(void *arg) {
    pthread_setspecific(key, (void *)((long)arg + 1));
    for (int i = 0; i < 1000; i++) {
        local += (int)(long)arg;
        big_local[i * 9] = (char)local;
        if (i % 100 == 0) sched_yield();
    }
    return (void *)(long)local;
}

static void tls(void) {
    pthread_key_create(&key, destroy);
    start(use_local);
    for (int i = 0; i < N; i++) {
        void *r;
        pthread_join(t[i], &r);
        printf("thread %d local %ld\n", i, (long)r);
    }
    printf("main local %d, destructors saw %d\n", local, destroyed);
}

static void *end_after_main(void *arg) {
    if (arg) pthread_join(t[(long)arg - 1], NULL);
    printf("thread %ld ends\n", (long)arg);
    return NULL;
}

static void exit_order(void) {
    // The first thread goes; each other one waits for the one before it, and the last ends the process with status 0.
    start(end_after_main);
    pthread_exit(NULL);
}

static void *end_process(void *arg) {
    if ((long)arg == 2) exit(42);
    for (;;) pause();
}

static void exit_from_thread(void) {
    start(end_process);
    for (;;) pause();
}

static volatile int flag;

static void *spinner(void *arg) {
    while (flag != (long)arg) {}
    flag = flag + 1;
    return NULL;
}

static void spin(void) {
    start(spinner);
    while (flag != N) {}
    join();
    pthread_spinlock_t s;
    pthread_spin_init(&s, 0);
    pthread_spin_lock(&s);
    printf("spin waits done %d, trylock %s\n", flag, strerror(pthread_spin_trylock(&s)));
}

static sem_t items, space;
static int queue[4], head, tail;

static void *produce(void *arg) {
    for (int i = 0; i < 500; i++) {
        sem_wait(&space);
        pthread_mutex_lock(&lock);
        queue[tail++ % 4] = i * N + (int)(long)arg;
        pthread_mutex_unlock(&lock);
        sem_post(&items);
    }
    return NULL;
}

static void semaphores(void) {
    sem_init(&items, 0, 0);
    sem_init(&space, 0, 4);
    start(produce);
    long sum = 0;
    for (int i = 0; i < 500 * N; i++) {
        sem_wait(&items);
        pthread_mutex_lock(&lock);
        sum += queue[head++ % 4];
        pthread_mutex_unlock(&lock);
        sem_post(&space);
    }
    join();
    struct timespec past = {1, 0};
    int r = sem_timedwait(&items, &past);
    printf("sum %ld, timed wait %d %s\n", sum, r, strerror(errno));
}

static int order[8], orders;
static void before(void) { order[orders++] = 1; }
static void in_parent(void) { order[orders++] = 2; }
static void in_child(void) { order[orders++] = 3; }

static void *allocate(void *arg) {
    while (!flag) free(malloc(100 + (size_t)rand() % 1000));
    return arg;
}

static void fork_among_threads(void) {
    pthread_atfork(before, in_parent, in_child);
    start(allocate);
    int good = 0;
    for (int i = 0; i < 20; i++) {
        fflush(stdout);
        orders = 0;
        pid_t p = fork();
        if (p == 0) {
            char *s = malloc(5000);
            memset(s, 1, 5000);
            free(s);
            _exit(order[0] == 1 && order[1] == 3 && orders == 2 ? 17 : 1);
        }
        int status;
        waitpid(p, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 17 && order[1] == 2;
    }
    flag = 1;
    join();
    printf("forks among threads: %d\n", good);
}

static void *short_lived(void *arg) { return (void *)((long)arg * 2); }

static void many(void) {
    long sum = 0;
    for (int round = 0; round < 100; round++) {
        for (long i = 0; i < N; i++) pthread_create(&t[i], NULL, short_lived, (void *)(round + i));
        for (int i = 0; i < N; i++) {
            void *r;
            pthread_join(t[i], &r);
            sum += (long)r;
        }
    }
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&a, 65536);
    for (long i = 0; i < 50; i++) {
        pthread_t d;
        if (pthread_create(&d, &a, short_lived, NULL)) abort();
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, before);
    pthread_once(&once, before);
    printf("sum %ld once %d\n", sum, orders);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"mutex", mutex}, {"cond", cond}, {"barriers", barriers}, {"rwlock", rwlock}, {"robust", robust}, {"pi", pi},
        {"cancel", cancel}, {"tls", tls}, {"exit-order", exit_order}, {"exit-from-thread", exit_from_thread},
        {"spin", spin}, {"semaphores", semaphores}, {"fork", fork_among_threads}, {"many", many},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "threads: no such part\n");
    return 2;
}
