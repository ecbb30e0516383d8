// The step `threshold`: compares each pixel of an image with a threshold.
//
// `rule.h` is the work; this file is the step around it. The image is changed where it lies, through
// a buffer of 32 KiB, so the step's memory does not grow with the image.
#include <math.h>

#include "gpux_json.h"
#include "gpux_step.h"
#include "rule.h"

#define BUFFER (32 * 1024)

static const char OPTIONS_SCHEMA[] =
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"threshold\"], \"properties\": {"
    "\"threshold\": {\"type\": \"number\", \"description\": \"pixels above it are treated in one way, all others in another\"},"
    "\"maximum\": {\"type\": \"number\", \"description\": \"what `binary` makes of a bright pixel; 255 for uint8 and 1 for "
    "float32 unless it is given\"},"
    "\"method\": {\"enum\": [\"binary\", \"binary-inverted\", \"truncate\", \"to-zero\", \"to-zero-inverted\"], "
    "\"default\": \"binary\", \"description\": \"as in OpenCV's `threshold`\"}}}";

static struct options {
    double threshold, maximum;
    bool has_maximum;
    enum method method;
} options;

void exports_step_describe(gpux_description_t *description) {
    description->summary = gpux_string("compares each pixel of an image with a threshold");
    description->options_schema = gpux_string(OPTIONS_SCHEMA);
}

static bool read_options(gpux_string_t text, gpux_error_t *error) {
    gpux_json_t json = gpux_json(text);
    char key[16], name[24] = "binary";
    bool has_threshold = false;
    options = (struct options){0};
    gpux_json_object(&json);
    while (gpux_json_key(&json, key, sizeof key)) {
        if (strcmp(key, "threshold") == 0) options.threshold = gpux_json_number(&json), has_threshold = true;
        else if (strcmp(key, "maximum") == 0) options.maximum = gpux_json_number(&json), options.has_maximum = true;
        else if (strcmp(key, "method") == 0) gpux_json_text(&json, name, sizeof name);
        else return gpux_invalid_inputf(error, "there is no option `%s`; there are threshold, maximum and method", key);
    }
    if (!gpux_json_end(&json))
        return gpux_invalid_inputf(error, "the options are wrong at byte %zu: %s", json.offset, json.error);
    if (!has_threshold) return gpux_invalid_input(error, "the option `threshold` is missing, such as `threshold: 127`");
    if (!method_named(name, &options.method)) return gpux_invalid_inputf(error, "there is no method `%s`", name);
    return true;
}

static gpux_port_t image_port(const char *description) {
    static const gpux_element_type_t elements[] = {GPUX_ELEMENT_TYPE_UINT8, GPUX_ELEMENT_TYPE_FLOAT32};
    gpux_port_t port = gpux_tensor_port("image", elements, 2, description);
    gpux_dimension_t shape[] = {gpux_named("height"), gpux_named("width"), gpux_named("channels")};
    gpux_set_shape(&port, shape, 3);
    gpux_set_layout(&port, GPUX_LAYOUT_HWC);
    return port;
}

bool exports_step_configure(gpux_string_t *text, gpux_signature_t *signature, gpux_error_t *error) {
    if (!read_options(*text, error)) return false;
    gpux_port_t input = image_port("an image of uint8 or float32");
    gpux_port_t output = image_port("the same image, each pixel compared with the threshold");
    *signature = gpux_signature(&input, 1, &output, 1);
    return true;
}

bool exports_step_process(gpux_frame_t *inputs, gpux_frame_t *outputs, gpux_error_t *error) {
    gpux_borrow_tensor_t image;
    if (!gpux_input_tensor(inputs, "image", &image, error)) return false;
    gpux_element_type_t element = gpux_method_tensor_element(image);
    if (element != GPUX_ELEMENT_TYPE_UINT8 && element != GPUX_ELEMENT_TYPE_FLOAT32)
        return gpux_invalid_input(error, "it takes an image of uint8 or float32");
    bool bytes = element == GPUX_ELEMENT_TYPE_UINT8;
    double maximum = options.has_maximum ? options.maximum : bytes ? 255 : 1;
    // As OpenCV does: a byte above 127.5 is one above 127.
    double threshold = bytes ? floor(options.threshold) : options.threshold;
    struct rule rule = rule_for(options.method, threshold, maximum);

    uint32_t length = gpux_method_tensor_byte_length(image);
    // A step of what was read, not of BUFFER: near 4 GiB that would begin again at 0.
    for (uint32_t offset = 0, size; offset < length; offset += size) {
        pipeline_step_list_u8_t part;
        gpux_string_t message;
        size = length - offset < BUFFER ? length - offset : BUFFER;
        if (!gpux_method_tensor_read(image, offset, size, &part, &message)) return gpux_failed_with(error, message);
        if (bytes) apply_to_bytes(&rule, part.ptr, part.len);
        else apply_to_floats(&rule, (float *)part.ptr, part.len / sizeof(float));
        bool written = gpux_method_tensor_write(image, offset, &part, &message);
        pipeline_step_list_u8_free(&part);
        if (!written) return gpux_failed_with(error, message);
    }
    *outputs = *inputs;
    *inputs = (gpux_frame_t){0};
    return true;
}
