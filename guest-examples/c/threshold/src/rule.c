#include "rule.h"

#include <math.h>
#include <string.h>

// gpux can stop a step in any loop, which costs a check for each turn: so the loops over pixels go
// by blocks of this many, each of which the compiler turns into a few SIMD instructions.
#define BLOCK 32

bool method_named(const char *name, enum method *method) {
    static const char *const names[] = {"binary", "binary-inverted", "truncate", "to-zero", "to-zero-inverted"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) return *method = (enum method)i, true;
    return false;
}

struct rule rule_for(enum method method, double threshold, double maximum) {
    struct rule rule = {.threshold = threshold};
    switch (method) {
    case BINARY: rule.above = maximum; break;
    case BINARY_INVERTED: rule.others = maximum; break;
    case TRUNCATE: rule.above = threshold, rule.keeps_others = true; break;
    case TO_ZERO: rule.keeps_above = true; break;
    case TO_ZERO_INVERTED: rule.keeps_others = true; break;
    }
    return rule;
}

static uint8_t saturate(double value) { return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : rint(value)); }

void apply_to_bytes(const struct rule *rule, uint8_t *pixels, size_t count) {
    // No pixel is below a negative threshold: then all are above it, which no byte can say.
    bool all_above = rule->threshold < 0;
    uint8_t limit = saturate(rule->threshold), above = saturate(rule->above), others = saturate(rule->others);
    uint8_t keep_above = rule->keeps_above ? 255 : 0, keep_others = rule->keeps_others ? 255 : 0;
    if (all_above) others = above, keep_others = keep_above;
    for (; count >= BLOCK; pixels += BLOCK, count -= BLOCK)
        for (int i = 0; i < BLOCK; i++)
            pixels[i] = pixels[i] > limit ? (pixels[i] & keep_above) | above : (pixels[i] & keep_others) | others;
    for (size_t i = 0; i < count; i++)
        pixels[i] = pixels[i] > limit ? (pixels[i] & keep_above) | above : (pixels[i] & keep_others) | others;
}

void apply_to_floats(const struct rule *rule, float *pixels, size_t count) {
    float threshold = (float)rule->threshold, above = (float)rule->above, others = (float)rule->others;
    bool keeps_above = rule->keeps_above, keeps_others = rule->keeps_others;
    for (; count >= BLOCK; pixels += BLOCK, count -= BLOCK)
        for (int i = 0; i < BLOCK; i++)
            pixels[i] = pixels[i] > threshold ? (keeps_above ? pixels[i] : above) : (keeps_others ? pixels[i] : others);
    for (size_t i = 0; i < count; i++)
        pixels[i] = pixels[i] > threshold ? (keeps_above ? pixels[i] : above) : (keeps_others ? pixels[i] : others);
}
