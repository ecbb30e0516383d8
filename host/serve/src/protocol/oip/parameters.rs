//! Parameters of requests: known ones are checked, others are ignored.

use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Map, Value as Json};

use crate::{Priority, RequestOptions, ServeError};

/// Parameters by name. gRPC parameters are converted to JSON, which has the same types.
pub(super) type Parameters = Map<String, Json>;

/// The most parameters, tensors or outputs of one request: more than any pipeline needs.
pub(super) const MAX_PARTS: usize = 4096;

/// The longest name, version, id or datatype, in bytes: they are quoted in errors and returned.
pub(super) const MAX_NAME: usize = 4 << 10;

/// The longest text of a parameter, in bytes.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// The error for a longer text.
pub(super) fn too_long(most: usize) -> String {
    match most {
        MAX_TEXT => format!("the text of a parameter has at most {MAX_TEXT} bytes"),
        _ => format!("a name, a version, an id or a datatype has at most {most} bytes"),
    }
}

/// What is known of a request's parameters; all others are ignored.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "for its schema")]
pub(super) struct RequestParameters {
    /// microseconds that it may take; 0 is the pipeline's own timeout
    timeout: Option<Count>,
    /// 1 before all others, 0 and 2 as usual, more after all others
    priority: Option<Count>,
    /// whether outputs come as bytes behind the JSON, if they do not say so themselves
    binary_data_output: Option<bool>,
}

/// What is known of an output's parameters; all others are ignored.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "for its schema")]
pub(super) struct OutputParameters {
    /// whether it comes as bytes behind the JSON
    binary_data: Option<bool>,
    /// how many of the best classes are given in place of the numbers
    classification: Option<Count>,
}

/// a whole number, or its digits
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "for its schema")]
enum Count {
    Number(u64),
    Digits(#[schemars(regex(pattern = "^[0-9]+$"))] String),
}

/// A boolean parameter.
pub(super) fn flag(parameters: &Parameters, name: &str) -> Result<Option<bool>, ServeError> {
    known(parameters, name, "true or false", Json::as_bool)
}

/// A parameter that is a count.
pub(super) fn count(parameters: &Parameters, name: &str) -> Result<Option<u64>, ServeError> {
    known(parameters, name, "a whole number, not below 0", |json| {
        json.as_u64().or_else(|| json.as_str().and_then(|text| text.parse().ok()))
    })
}

fn known<T>(
    parameters: &Parameters,
    name: &str,
    expected: &str,
    read: impl Fn(&Json) -> Option<T>,
) -> Result<Option<T>, ServeError> {
    let Some(json) = parameters.get(name).filter(|json| !json.is_null()) else { return Ok(None) };
    let wrong = || ServeError::invalid(format!("the parameter `{name}` is {expected}"));
    read(json).ok_or_else(wrong).map(Some)
}

/// Rejects tensors in shared memory. Without this check, their data would be missing.
pub(super) fn reject_shared_memory(parameters: &Parameters, tensor: &str) -> Result<(), ServeError> {
    if parameters.contains_key("shared_memory_region") {
        let message = format!("`{tensor}`: shared memory is not supported; send the data itself");
        return Err(ServeError::invalid(message));
    }
    Ok(())
}

/// The options of a request: `timeout` in microseconds, and `priority`, where 1 is the highest, 0 and 2 are the
/// default, and larger values are lower.
pub(super) fn options(parameters: &Parameters, bytes: usize) -> Result<RequestOptions, ServeError> {
    let timeout = count(parameters, "timeout")?.filter(|timeout| *timeout > 0).map(Duration::from_micros);
    let priority = match count(parameters, "priority")? {
        Some(1) => Priority::High,
        None | Some(0 | 2) => Priority::Normal,
        Some(_) => Priority::Low,
    };
    Ok(RequestOptions { timeout, priority, body_bytes: Some(bytes) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checks_known_parameters_only() {
        let parameters = |json: Json| json.as_object().cloned().unwrap();
        let asked = options(&parameters(json!({ "timeout": 1500, "priority": 1, "other": [1] })), 7).unwrap();
        assert_eq!(
            (asked.timeout, asked.priority, asked.body_bytes),
            (Some(Duration::from_micros(1500)), Priority::High, Some(7))
        );
        assert_eq!(options(&parameters(json!({ "timeout": 0, "priority": 9 })), 0).unwrap().priority, Priority::Low);
        for wrong in [json!({ "timeout": -1 }), json!({ "timeout": [1] }), json!({ "priority": "high" })] {
            assert!(options(&parameters(wrong), 0).is_err());
        }
        assert!(flag(&parameters(json!({ "binary_data": 1 })), "binary_data").is_err());
    }
}
