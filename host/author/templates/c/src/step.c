// The step `{{name}}`: multiplies every number by a factor.
#include <math.h>

#include "gpux_json.h"
#include "gpux_step.h"

// Bytes that are worked on at a time, so that memory does not grow with the tensor.
#define BUFFER (32 * 1024)

static float factor;

void exports_step_describe(gpux_description_t *description) {
    description->summary = gpux_string("multiplies every number by a factor");
    description->options_schema = gpux_string(
        "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {"
        "\"factor\": {\"type\": \"number\", \"default\": 1, \"description\": \"what each number is multiplied by\"}}}");
}

// Reads the options and says what the step takes and gives.
bool exports_step_configure(gpux_string_t *options, gpux_signature_t *signature, gpux_error_t *error) {
    gpux_json_t json = gpux_json(*options);
    char key[16];
    factor = 1;
    gpux_json_object(&json);
    while (gpux_json_key(&json, key, sizeof key)) {
        if (strcmp(key, "factor") == 0) factor = (float)gpux_json_number(&json);
        else gpux_json_skip(&json);
    }
    if (!gpux_json_end(&json))
        return gpux_invalid_inputf(error, "the options are wrong at byte %zu: %s", json.offset, json.error);

    const gpux_element_type_t float32 = GPUX_ELEMENT_TYPE_FLOAT32;
    gpux_port_t input = gpux_tensor_port("numbers", &float32, 1, "any numbers");
    gpux_port_t output = gpux_tensor_port("numbers", &float32, 1, "the numbers, multiplied");
    *signature = gpux_signature(&input, 1, &output, 1);
    return true;
}

// One request.
bool exports_step_process(gpux_frame_t *inputs, gpux_frame_t *outputs, gpux_error_t *error) {
    gpux_borrow_tensor_t tensor;
    if (!gpux_input_tensor(inputs, "numbers", &tensor, error)) return false;
    uint32_t length = gpux_method_tensor_byte_length(tensor);
    // A step of what was read, not of BUFFER: near 4 GiB that would begin again at 0.
    for (uint32_t offset = 0, size; offset < length; offset += size) {
        pipeline_step_list_u8_t part;
        gpux_string_t message;
        size = length - offset < BUFFER ? length - offset : BUFFER;
        if (!gpux_method_tensor_read(tensor, offset, size, &part, &message)) return gpux_failed_with(error, message);
        float *numbers = (float *)part.ptr;
        for (size_t i = 0; i < part.len / sizeof(float); i++) {
            if (isnan(numbers[i]))
                return gpux_invalid_inputf(error, "number %zu is not a number", offset / sizeof(float) + i);
            numbers[i] *= factor;
        }
        bool written = gpux_method_tensor_write(tensor, offset, &part, &message);
        pipeline_step_list_u8_free(&part);
        if (!written) return gpux_failed_with(error, message);
    }
    // What came in goes out, changed.
    *outputs = *inputs;
    return true;
}
