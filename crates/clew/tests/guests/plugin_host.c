// Calls the function of a library that it is given, by its name at run time.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (!library) return 2;
    int (*answer)(int) = (int (*)(int))dlsym(library, "answer");
    printf("%d\n", answer(argc));
    return 0;
}
