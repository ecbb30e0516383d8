// What a threshold does to pixels: plain C that knows nothing of gpux.
#ifndef RULE_H
#define RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum method { BINARY, BINARY_INVERTED, TRUNCATE, TO_ZERO, TO_ZERO_INVERTED };

// A pixel above the threshold, and any other (NaN too), either stays or becomes a fixed value.
struct rule {
    double threshold;
    bool keeps_above, keeps_others;
    double above, others;
};

// Whether there is a method of that name, and which.
bool method_named(const char *name, enum method *method);

struct rule rule_for(enum method method, double threshold, double maximum);

// For bytes, the rule's threshold must be a whole number; its values are rounded into 0 to 255.
void apply_to_bytes(const struct rule *rule, uint8_t *pixels, size_t count);

void apply_to_floats(const struct rule *rule, float *pixels, size_t count);

#endif
