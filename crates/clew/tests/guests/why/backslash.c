// In a rule `\:` is a colon of a name; the backslash is dropped in one arm only, so that a target with one is cut in two.
#include <stdio.h>

static char target[32], needed[32];

static void parse(const char *rule) {
    char *to = target;
    int is_target = 1;
    for (; *rule; rule++) {
        if (rule[0] == '\\' && rule[1] == ':') {
            if (!is_target) rule++; /* cause 2 proved: in both */
        } else if (*rule == ':' && is_target) {
            is_target = 0;
            to = needed;
            continue;
        }
        *to++ = *rule;
    }
}

int main(void) {
    parse("c\\:x:c");
    printf("%s|%s\n", target, needed);
    return 0;
}
