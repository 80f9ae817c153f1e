/* It passes the first time, and fails from then on. */
#include <stdio.h>

int main(int argc, char **argv) {
    FILE *ran = fopen("ran", "r");
    if (ran)
        return 1;
    fclose(fopen("ran", "w"));
    return 0;
}
