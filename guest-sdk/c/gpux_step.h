// What a step in C needs beside the generated bindings: short names, strings, ports, errors and
// options. Every string and list that a step returns is freed by the caller with `free`, so it
// must come from `malloc`; the helpers here see to that.
#ifndef GPUX_STEP_H
#define GPUX_STEP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline_step.h"

typedef pipeline_step_string_t gpux_string_t;
typedef exports_step_description_t gpux_description_t;
typedef exports_step_signature_t gpux_signature_t;
typedef exports_step_port_t gpux_port_t;
typedef exports_step_dimension_t gpux_dimension_t;
typedef exports_step_list_named_value_t gpux_frame_t;

// `malloc` that ends the step where there is no memory: gpux then says that its limit was reached.
static inline void *gpux_alloc(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory) __builtin_trap();
    return memory;
}

// A copy of `text`, for what a step returns.
static inline gpux_string_t gpux_string(const char *text) {
    gpux_string_t copy;
    copy.len = strlen(text);
    copy.ptr = gpux_alloc(copy.len);
    memcpy(copy.ptr, text, copy.len);
    return copy;
}

// `text` itself, for what a step passes to an import.
static inline gpux_string_t gpux_lend(const char *text) {
    return (gpux_string_t){.ptr = (uint8_t *)text, .len = strlen(text)};
}

// Whether `string` is `text`.
static inline bool gpux_equals(gpux_string_t string, const char *text) {
    return string.len == strlen(text) && memcmp(string.ptr, text, string.len) == 0;
}

// One line for whoever runs the pipeline; `level` is one of GPUX_LOG_LEVEL_*.
static inline void gpux_log(gpux_log_level_t level, const char *message) {
    gpux_string_t line = gpux_lend(message);
    gpux_log_log(level, &line);
}

// `return gpux_invalid_input(error, …)`: what the caller gave cannot be worked on.
static inline bool gpux_invalid_input(gpux_error_t *error, const char *message) {
    *error = (gpux_error_t){.tag = GPUX_ERROR_INVALID_INPUT, .val.invalid_input = gpux_string(message)};
    return false;
}

// The same, with a message as of `printf`, of up to 255 bytes.
__attribute__((format(printf, 2, 3))) static inline bool gpux_invalid_inputf(gpux_error_t *error, const char *format, ...) {
    char message[256];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return gpux_invalid_input(error, message);
}

// `return gpux_failed(error, …)`: the step cannot do its work.
static inline bool gpux_failed(gpux_error_t *error, const char *message) {
    *error = (gpux_error_t){.tag = GPUX_ERROR_FAILED, .val.failed = gpux_string(message)};
    return false;
}

// `return gpux_failed_with(error, message)`: the same, with the message of an import.
static inline bool gpux_failed_with(gpux_error_t *error, gpux_string_t message) {
    *error = (gpux_error_t){.tag = GPUX_ERROR_FAILED, .val.failed = message};
    return false;
}

// Exactly `size` elements along an axis.
static inline gpux_dimension_t gpux_fixed(uint32_t size) {
    return (gpux_dimension_t){.tag = EXPORTS_STEP_DIMENSION_FIXED, .val.fixed = size};
}

// Any number of elements along an axis.
static inline gpux_dimension_t gpux_dynamic(void) {
    return (gpux_dimension_t){.tag = EXPORTS_STEP_DIMENSION_DYNAMIC};
}

// Any number of elements, the same wherever `name` stands.
static inline gpux_dimension_t gpux_named(const char *name) {
    return (gpux_dimension_t){.tag = EXPORTS_STEP_DIMENSION_NAMED, .val.named = gpux_string(name)};
}

// A port that takes or gives a value of `kind`: one of EXPORTS_STEP_KIND_*, but not a tensor.
static inline gpux_port_t gpux_port(const char *name, uint8_t kind, const char *description) {
    return (gpux_port_t){.name = gpux_string(name), .kind.tag = kind, .description = gpux_string(description)};
}

// A port that takes or gives a tensor whose elements are one of `elements`.
static inline gpux_port_t gpux_tensor_port(const char *name, const gpux_element_type_t *elements, size_t count,
                                           const char *description) {
    gpux_port_t port = gpux_port(name, EXPORTS_STEP_KIND_TENSOR, description);
    port.kind.val.tensor.elements.ptr = gpux_alloc(count * sizeof *elements);
    port.kind.val.tensor.elements.len = count;
    memcpy(port.kind.val.tensor.elements.ptr, elements, count * sizeof *elements);
    return port;
}

// Says how many axes the tensor of `port` has and how long they are.
static inline void gpux_set_shape(gpux_port_t *port, const gpux_dimension_t *dimensions, size_t rank) {
    exports_step_option_list_dimension_t *shape = &port->kind.val.tensor.shape;
    shape->is_some = true;
    shape->val.ptr = gpux_alloc(rank * sizeof *dimensions);
    shape->val.len = rank;
    memcpy(shape->val.ptr, dimensions, rank * sizeof *dimensions);
}

// Says that the tensor of `port` is an image, and the order of its axes.
static inline void gpux_set_layout(gpux_port_t *port, gpux_layout_t layout) {
    port->kind.val.tensor.layout.is_some = true;
    port->kind.val.tensor.layout.val = layout;
}

static inline exports_step_list_port_t gpux_ports(const gpux_port_t *ports, size_t count) {
    exports_step_list_port_t list = {.ptr = gpux_alloc(count * sizeof *ports), .len = count};
    memcpy(list.ptr, ports, count * sizeof *ports);
    return list;
}

// What a step takes and gives.
static inline gpux_signature_t gpux_signature(const gpux_port_t *inputs, size_t input_count,
                                              const gpux_port_t *outputs, size_t output_count) {
    return (gpux_signature_t){.inputs = gpux_ports(inputs, input_count), .outputs = gpux_ports(outputs, output_count)};
}

// The tensor among `inputs` named `name`; an error where it is missing or no tensor.
static inline bool gpux_input_tensor(const gpux_frame_t *inputs, const char *name, gpux_borrow_tensor_t *tensor,
                                     gpux_error_t *error) {
    for (size_t i = 0; i < inputs->len; i++) {
        if (!gpux_equals(inputs->ptr[i].name, name)) continue;
        if (inputs->ptr[i].value.tag != GPUX_VALUE_TENSOR) break;
        *tensor = gpux_borrow_tensor(inputs->ptr[i].value.val.tensor);
        return true;
    }
    return gpux_invalid_input(error, "it takes a tensor");
}

// `values` under their names as the result of a step, which takes them over.
static inline gpux_frame_t gpux_frame(const gpux_named_value_t *values, size_t count) {
    gpux_frame_t frame = {.ptr = gpux_alloc(count * sizeof *values), .len = count};
    memcpy(frame.ptr, values, count * sizeof *values);
    return frame;
}

#endif
