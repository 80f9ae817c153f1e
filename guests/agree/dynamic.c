// dlopen and dlclose: libraries come and go, often at the same address.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int count_plugins(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    *(int *)out += strstr(info->dlpi_name, "plugin") != NULL;
    return 0;
}

static void *in_thread(void *compute) { return (void *)(long)((int (*)(int))compute)(1000); }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long sum = 0;
    for (int round = 0; round < 6; round++) {
        void *lib = dlopen(argv[1 + round % 2], RTLD_NOW);
        if (!lib) return printf("%s\n", dlerror()), 1;
        int (*compute)(int) = (int (*)(int))dlsym(lib, "compute");
        int (*chosen)(int) = (int (*)(int))dlsym(lib, "chosen");
        for (int i = 0; i < 100; i++) sum = sum * 7 % 1000003 + compute(i) + chosen(i);
        pthread_t t;
        void *r;
        pthread_create(&t, NULL, in_thread, (void *)compute);
        pthread_join(t, &r);
        int plugins = 0;
        dl_iterate_phdr(count_plugins, &plugins);
        printf("round %d sum %ld thread %ld plugins %d\n", round, sum, (long)r, plugins);
        Dl_info info;
        printf("symbol %s\n", dladdr((void *)compute, &info) ? info.dli_sname : "unknown");
        dlclose(lib);
    }
    void *none = dlopen("./no-such-library.so", RTLD_NOW);
    printf("missing: %d %s\n", none == NULL, dlerror());
    void *libm = dlopen("libm.so.6", RTLD_LAZY);
    double (*cosine)(double) = (double (*)(double))dlsym(libm, "cos");
    printf("cos %.15f\n", cosine(1.0));
    printf("no symbol: %d\n", dlsym(libm, "no_such_symbol") == NULL);
    return 0;
}
