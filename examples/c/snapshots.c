/* Takes snapshots of a working set: copies that are not read soon, so that the working set stays in the cache. */
#include <bulkmem.h>
#include <stdio.h>
#include <string.h>

#define LENGTH ((size_t)4 << 20)
#define SNAPSHOTS 8

static unsigned char working_set[LENGTH];

int main(void)
{
    struct bulkmem_options options = BULKMEM_OPTIONS_INIT;
    struct bulkmem_mapping *mapping;
    unsigned char *snapshots;
    size_t i, taken = 0;
    int error = bulkmem_map(SNAPSHOTS * LENGTH, BULKMEM_PAGES_TRANSPARENT, &mapping);

    if (error < 0) {
        fprintf(stderr, "no memory for snapshots: %s\n", bulkmem_last_error());
        return 1;
    }
    snapshots = bulkmem_mapping_memory(mapping);
    options.intent = BULKMEM_INTENT_STREAM;
    for (i = 0; i < SNAPSHOTS; i++) {
        memset(working_set, (int)i, LENGTH); /* the program's work */
        error = bulkmem_copy_with(snapshots + i * LENGTH, working_set, LENGTH, &options);
        if (error < 0) {
            fprintf(stderr, "snapshot %zu: %s\n", i, bulkmem_last_error());
            break;
        }
        taken += snapshots[i * LENGTH] == i;
    }
    printf("%zu snapshots with bulkmem %s\n", taken, bulkmem_version());
    bulkmem_unmap(mapping);
    return error < 0;
}
