//! Reads the requests of `serving.warmup` and checks them against the plan.

use std::path::Path;

use serde_json::Value as Json;

use gpux_config::{Diagnostic, Spanned, Spec};
use gpux_core::{Plan, Port, ProjectFiles, Request, Value, from_json};

/// The largest file that a request may name, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// Every request, or every mistake in them.
pub(super) fn requests(spec: &Spec, plan: &Plan, files: &ProjectFiles) -> Result<Vec<Request>, Vec<Diagnostic>> {
    let (mut requests, mut faults) = (Vec::new(), Vec::new());
    for written in &spec.serving.warmup {
        match request(written, plan, files) {
            Ok(request) => requests.push(request),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(requests) } else { Err(faults) }
}

fn request(
    written: &Spanned<serde_json::Map<String, Json>>,
    plan: &Plan,
    files: &ProjectFiles,
) -> Result<Request, Diagnostic> {
    let fault = |message: String| {
        let hint = format!("it takes {}", plan.signature().describe_inputs());
        Diagnostic::new("warmup", written.span.clone(), format!("this request does not fit: {message}")).hint(hint)
    };
    let mut request = Request::new();
    for (name, json) in &written.value {
        let port = plan.signature().port(name).ok_or_else(|| fault(format!("the pipeline has no input `{name}`")))?;
        let value = value(port, json, files).map_err(&fault)?;
        let fits = port.kind.accepts(&value.kind());
        fits.map_err(|mismatch| fault(format!("input `{name}`: {mismatch}")))?;
        request.push((name.clone(), value));
    }
    let needed = plan.inputs().iter().filter(|input| input.is_required());
    match needed.map(|input| &input.port.name).find(|needed| !written.value.contains_key(*needed)) {
        Some(missing) => Err(fault(format!("the input `{missing}` is missing"))),
        None => Ok(request),
    }
}

/// A value as it would stand in a request's JSON, or the content of a file.
fn value(port: &Port, json: &Json, files: &ProjectFiles) -> Result<Value, String> {
    let Some(path) = file(json) else {
        return from_json(json.clone(), &port.kind).map_err(|error| format!("input `{}`: {error}", port.name));
    };
    let path = Path::new(path);
    let bytes = files.read(path, MAX_FILE).map_err(|error| format!("input `{}`: {error}", port.name))?;
    let is_npy = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    let value = if is_npy { port.npy(&bytes) } else { port.field(bytes) };
    value.map_err(|error| error.to_string())
}

/// The path in `{file: PATH}`.
pub(super) fn file(json: &Json) -> Option<&str> {
    json.as_object().filter(|fields| fields.len() == 1)?.get("file")?.as_str()
}
