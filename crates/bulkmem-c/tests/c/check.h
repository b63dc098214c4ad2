/* What the test programs share. They are C11 and C++17. */
#ifndef CHECK_H
#define CHECK_H

#include <bulkmem.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, bulkmem_last_error());    \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

/* Evaluates a call, which must return that and leave errno as it was. */
#define RETURNS(expected, call)                                                                                       \
    do {                                                                                                              \
        int result_;                                                                                                  \
        errno = 1234;                                                                                                 \
        result_ = (call);                                                                                             \
        CHECK(errno == 1234);                                                                                         \
        CHECK(result_ == (int)(expected));                                                                            \
    } while (0)

#endif
