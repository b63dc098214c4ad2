/* For any C library, and without one that is shared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints the files that are mapped. */
static int maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[4096];
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    return !file;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "maps") == 0)
        return maps();
    size_t length = 3 << 20, at;
    char *from = malloc(length), *to = malloc(length);
    unsigned sum = 0;
    memset(from, 7, length);
    memcpy(to, from, length);
    memmove(to + 1, to, length - 1);
    for (at = 0; at < length; at++)
        sum += (unsigned char)to[at];
    printf("%u\n", sum);
    return 0;
}
