// A strict reader of JSON (RFC 8259) for a step's options, without a copy of the document.
//
//     gpux_json_t json = gpux_json(*options);
//     char key[32];
//     gpux_json_object(&json);
//     while (gpux_json_key(&json, key, sizeof key)) {
//         if (strcmp(key, "threshold") == 0) threshold = gpux_json_number(&json);
//         else gpux_json_skip(&json);
//     }
//     if (!gpux_json_end(&json)) return gpux_invalid_inputf(error, "%s at byte %zu", json.error, json.offset);
//
// The first mistake is kept in `error` with its place; after it, every call gives false, zero or an
// empty text, so it is enough to look once, at the end.
#ifndef GPUX_JSON_H
#define GPUX_JSON_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline_step.h"

// How deep arrays and objects may lie in one another.
#define GPUX_JSON_DEPTH 64
// The longest number, in characters.
#define GPUX_JSON_NUMBER 64

typedef struct {
    const char *text;
    size_t len;
    // where the reader stands, or where the mistake is, in bytes
    size_t offset;
    // the first mistake; NULL while there is none
    const char *error;
    unsigned depth;
    // whether nothing has been read yet of the array or object that it is in
    bool first;
} gpux_json_t;

static inline gpux_json_t gpux_json(pipeline_step_string_t text) {
    return (gpux_json_t){.text = (const char *)text.ptr, .len = text.len};
}

static inline bool gpux_json_wrong(gpux_json_t *json, const char *what) {
    if (!json->error) json->error = what;
    return false;
}

// The next character that is no white space; 0 at the end and after a mistake.
static inline char gpux_json_peek(gpux_json_t *json) {
    if (json->error) return 0;
    while (json->offset < json->len && strchr(" \t\n\r", json->text[json->offset]) && json->text[json->offset])
        json->offset++;
    return json->offset < json->len ? json->text[json->offset] : 0;
}

static inline bool gpux_json_take(gpux_json_t *json, char wanted) {
    if (gpux_json_peek(json) != wanted) return false;
    json->offset++;
    return true;
}

static inline bool gpux_json_word(gpux_json_t *json, const char *word) {
    size_t len = strlen(word);
    if (gpux_json_peek(json) != *word || json->len - json->offset < len ||
        memcmp(json->text + json->offset, word, len) != 0)
        return false;
    json->offset += len;
    return true;
}

static inline bool gpux_json_open(gpux_json_t *json, char bracket, const char *wanted) {
    if (!gpux_json_take(json, bracket)) return gpux_json_wrong(json, wanted);
    if (++json->depth > GPUX_JSON_DEPTH) return gpux_json_wrong(json, "nested too deeply");
    return json->first = true;
}

// Whether another member follows; takes the comma before it, or the closing bracket.
static inline bool gpux_json_more(gpux_json_t *json, char bracket) {
    if (gpux_json_take(json, bracket)) {
        json->depth--;
        return json->first = false;
    }
    if (!json->first && !gpux_json_take(json, ',')) return gpux_json_wrong(json, "a comma or a closing bracket is missing");
    json->first = false;
    return !json->error;
}

// The value of four hexadecimal digits.
static inline uint32_t gpux_json_hex(gpux_json_t *json) {
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        char digit = json->offset < json->len ? json->text[json->offset] : 0;
        if (digit >= '0' && digit <= '9') unit = unit * 16 + (uint32_t)(digit - '0');
        else if ((digit | 32) >= 'a' && (digit | 32) <= 'f') unit = unit * 16 + (uint32_t)((digit | 32) - 'a' + 10);
        else return gpux_json_wrong(json, "\\u needs four hexadecimal digits");
        json->offset++;
    }
    return unit;
}

// The character behind a backslash.
static inline uint32_t gpux_json_escape(gpux_json_t *json) {
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char name = json->offset < json->len ? json->text[json->offset] : 0;
    const char *found = name ? strchr(names, name) : NULL;
    if (found) {
        json->offset++;
        return (uint32_t)meanings[found - names];
    }
    if (name != 'u') return gpux_json_wrong(json, "an unknown escape in a text");
    json->offset++;
    uint32_t unit = gpux_json_hex(json);
    if (unit < 0xD800 || unit > 0xDFFF) return unit;
    if (unit < 0xDC00 && json->len - json->offset >= 2 && memcmp(json->text + json->offset, "\\u", 2) == 0) {
        json->offset += 2;
        uint32_t low = gpux_json_hex(json);
        if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    return gpux_json_wrong(json, "half a character (an unpaired surrogate) in a text");
}

static inline size_t gpux_json_utf8(uint32_t point, char into[4]) {
    if (point < 0x80) return into[0] = (char)point, 1;
    if (point < 0x800) return into[0] = (char)(0xC0 | point >> 6), into[1] = (char)(0x80 | (point & 63)), 2;
    if (point < 0x10000) {
        into[0] = (char)(0xE0 | point >> 12), into[1] = (char)(0x80 | (point >> 6 & 63));
        return into[2] = (char)(0x80 | (point & 63)), 3;
    }
    into[0] = (char)(0xF0 | point >> 18), into[1] = (char)(0x80 | (point >> 12 & 63));
    return into[2] = (char)(0x80 | (point >> 6 & 63)), into[3] = (char)(0x80 | (point & 63)), 4;
}

// The next text, as UTF-8 ended by a zero, into `capacity` bytes at `into`; nowhere if that is NULL.
// A text that does not fit is a mistake; so is one with a zero inside.
static inline bool gpux_json_text(gpux_json_t *json, char *into, size_t capacity) {
    size_t used = 0;
    if (into) into[0] = 0;
    if (!gpux_json_take(json, '"')) return gpux_json_wrong(json, "a text is expected");
    while (!json->error && json->offset < json->len) {
        char bytes[4] = {json->text[json->offset++]};
        size_t count = 1;
        if (bytes[0] == '"') {
            if (into) into[used] = 0;
            return true;
        }
        if ((unsigned char)bytes[0] < 0x20) gpux_json_wrong(json, "a control character in a text");
        if (bytes[0] == '\\') count = gpux_json_utf8(gpux_json_escape(json), bytes);
        if (bytes[0] == 0) gpux_json_wrong(json, "a zero in a text");
        if (!into) continue;
        if (capacity - used <= count) gpux_json_wrong(json, "a text that is too long");
        else memcpy(into + used, bytes, count), used += count;
    }
    if (into) into[0] = 0;
    return gpux_json_wrong(json, "a text without an end");
}

static inline size_t gpux_json_digits(gpux_json_t *json) {
    size_t start = json->offset;
    while (json->offset < json->len && json->text[json->offset] >= '0' && json->text[json->offset] <= '9') json->offset++;
    return json->offset - start;
}

// The next number.
static inline double gpux_json_number(gpux_json_t *json) {
    static const char expected[] = "a number is expected";
    char start = gpux_json_peek(json);
    size_t from = json->offset;
    if (start == '-') json->offset++;
    size_t whole_from = json->offset;
    size_t whole = start ? gpux_json_digits(json) : 0;
    if (whole == 0 || (whole > 1 && json->text[whole_from] == '0')) return gpux_json_wrong(json, expected);
    if (json->offset < json->len && json->text[json->offset] == '.') {
        json->offset++;
        if (gpux_json_digits(json) == 0) return gpux_json_wrong(json, expected);
    }
    if (json->offset < json->len && (json->text[json->offset] | 32) == 'e') {
        json->offset++;
        if (json->offset < json->len && strchr("+-", json->text[json->offset]) && json->text[json->offset]) json->offset++;
        if (gpux_json_digits(json) == 0) return gpux_json_wrong(json, expected);
    }
    char digits[GPUX_JSON_NUMBER + 1] = {0};
    if (json->offset - from > GPUX_JSON_NUMBER) return gpux_json_wrong(json, "a number with too many digits");
    memcpy(digits, json->text + from, json->offset - from);
    double number = strtod(digits, NULL);
    return isfinite(number) ? number : gpux_json_wrong(json, "a number that is too large");
}

// The next `true` or `false`.
static inline bool gpux_json_bool(gpux_json_t *json) {
    if (gpux_json_word(json, "true")) return true;
    if (!gpux_json_word(json, "false")) gpux_json_wrong(json, "`true` or `false` is expected");
    return false;
}

// Whether `null` is next; takes it.
static inline bool gpux_json_null(gpux_json_t *json) { return gpux_json_word(json, "null"); }

// Begins an object; its members follow with `gpux_json_key`.
static inline bool gpux_json_object(gpux_json_t *json) { return gpux_json_open(json, '{', "an object is expected"); }

// The key of the next member, as `gpux_json_text`; false where there is none. Its value must be
// read, or left out with `gpux_json_skip`, before the next call.
static inline bool gpux_json_key(gpux_json_t *json, char *into, size_t capacity) {
    if (!gpux_json_more(json, '}') || !gpux_json_text(json, into, capacity)) return false;
    return gpux_json_take(json, ':') || gpux_json_wrong(json, "a colon is missing");
}

// Begins an array; its items follow, each after `gpux_json_item` gave true.
static inline bool gpux_json_array(gpux_json_t *json) { return gpux_json_open(json, '[', "an array is expected"); }

// Whether the array has another item.
static inline bool gpux_json_item(gpux_json_t *json) { return gpux_json_more(json, ']'); }

// Leaves out the next value, whatever it is.
static inline void gpux_json_skip(gpux_json_t *json) {
    switch (gpux_json_peek(json)) {
    case '{':
        gpux_json_object(json);
        while (gpux_json_key(json, NULL, 0)) gpux_json_skip(json);
        break;
    case '[':
        gpux_json_array(json);
        while (gpux_json_item(json)) gpux_json_skip(json);
        break;
    case '"': gpux_json_text(json, NULL, 0); break;
    case 't':
    case 'f': gpux_json_bool(json); break;
    case 'n':
        if (gpux_json_null(json)) break;
        // fall through
    default: gpux_json_number(json);
    }
}

// Whether the document was right up to its end. Otherwise `error` and `offset` say what is wrong.
static inline bool gpux_json_end(gpux_json_t *json) {
    if (!json->error && (gpux_json_peek(json) != 0 || json->offset < json->len))
        gpux_json_wrong(json, "something stands after the end");
    return !json->error;
}

#endif
