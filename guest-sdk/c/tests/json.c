// Tests of gpux_json.h, on the machine itself: cc -I.. json.c && ./a.out
#include <stdio.h>

#include "gpux_json.h"

static int failures;

static gpux_json_t over(const char *text) {
    return gpux_json((pipeline_step_string_t){.ptr = (uint8_t *)text, .len = strlen(text)});
}

static void check(bool holds, const char *what, const char *text) {
    if (holds) return;
    printf("%s: %s\n", what, text);
    failures++;
}

static void right(const char *text) {
    gpux_json_t json = over(text);
    gpux_json_skip(&json);
    check(gpux_json_end(&json), "refused", text);
}

static void wrong(const char *text, size_t offset) {
    gpux_json_t json = over(text);
    gpux_json_skip(&json);
    check(!gpux_json_end(&json), "taken", text);
    if (json.offset != offset) printf("at %zu, not at %zu: ", json.offset, offset), check(false, json.error, text);
}

static void number(const char *text, double value) {
    gpux_json_t json = over(text);
    double read = gpux_json_number(&json);
    check(gpux_json_end(&json) && read == value, "not that number", text);
}

static void text(const char *json_text, const char *value) {
    gpux_json_t json = over(json_text);
    char read[16];
    gpux_json_text(&json, read, sizeof read);
    check(gpux_json_end(&json) && strcmp(read, value) == 0, "not that text", json_text);
}

int main(void) {
    right("{}"), right(" [ ] "), right("null"), right("[1, true, \"a\", {\"b\": [[]]}]"), right("{\"a\":{},\"b\":[1,2]}");
    wrong("", 0), wrong("{", 1), wrong("[1,]", 3), wrong("[1 2]", 3), wrong("{\"a\"}", 4), wrong("{\"a\":1,}", 7);
    wrong("{a:1}", 1), wrong("1 2", 2), wrong("nul", 0), wrong("[1}", 2), wrong("\"a", 2), wrong("tru", 0), wrong(",", 0);
    wrong("01", 2), wrong("-", 1), wrong("1.", 2), wrong(".5", 0), wrong("+1", 0), wrong("1e", 2), wrong("NaN", 0);
    wrong("1e999", 5), wrong("0x10", 1), wrong("'a'", 0), wrong("// a\n1", 0);
    number("0", 0), number("-0.5", -0.5), number("127.5", 127.5), number("1e3", 1000), number("2.5E-1", 0.25);
    number("0.1", 0.1), number("9007199254740993", 9007199254740992.0), number("1.7976931348623157e308", 1.7976931348623157e308);
    text("\"\"", ""), text("\"a\\\"\\\\\\/\\n\"", "a\"\\/\n"), text("\"\\u00e9\\u20ac\\ud83d\\ude00\"", "é€😀"), text("\"é\"", "é");
    wrong("\"\\ud83d\"", 7), wrong("\"\\ude00\"", 7), wrong("\"\\u12g4\"", 5), wrong("\"\\x\"", 2), wrong("\"\\u0000\"", 7);
    wrong("\"\x01\"", 2);

    char deep[200];
    memset(deep, '[', GPUX_JSON_DEPTH), memset(deep + GPUX_JSON_DEPTH, ']', GPUX_JSON_DEPTH), deep[2 * GPUX_JSON_DEPTH] = 0;
    right(deep);
    memset(deep, '[', 199), deep[199] = 0;
    wrong(deep, GPUX_JSON_DEPTH + 1);

    char quoted[1000];
    memset(quoted, 'a', 999), quoted[0] = quoted[998] = '"', quoted[999] = 0;
    right(quoted);

    gpux_json_t json = over("\"0123456789abcdef\"");
    char small[16];
    check(!gpux_json_text(&json, small, sizeof small) && small[0] == 0, "a text longer than its place", "taken");
    printf("%s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
