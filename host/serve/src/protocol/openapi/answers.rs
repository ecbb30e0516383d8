//! Error responses. Each is defined once in the document, and operations refer to it.

use serde_json::{Map, Value as Json, json};

/// The form of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorShape {
    /// kind, message and details
    Own,
    /// the Open Inference Protocol's form: a message
    Protocol,
    /// OpenAI's form
    OpenAi,
    /// that of Jina and Cohere
    Rerank,
    /// that of Text Embeddings Inference
    Tei,
}

/// Every error status and its meaning.
const MEANINGS: [(&str, &str); 12] = [
    ("400", "the request does not fit, or a step refuses it"),
    ("401", "a key is wanted"),
    ("403", "the key may not"),
    ("404", "there is no such pipeline, or no such version of it"),
    ("406", "no output can be given in a type that is accepted"),
    ("408", "the body did not come in time"),
    ("413", "the body is larger than allowed"),
    ("415", "a body of this type or encoding is not read"),
    ("429", "more than the key allows"),
    ("500", "a step failed or ran into a limit"),
    ("503", "there is no room or no time for it now, or the pipeline is being loaded"),
    ("504", "it took longer than it may"),
];

impl ErrorShape {
    const ALL: [Self; 5] = [Self::Own, Self::Protocol, Self::OpenAi, Self::Rerank, Self::Tei];

    const fn schema(self) -> &'static str {
        match self {
            Self::Own => "Error",
            Self::Protocol => "ProtocolError",
            Self::OpenAi => "OpenAiError",
            Self::Rerank => "RerankError",
            Self::Tei => "TeiError",
        }
    }

    fn name(self, status: &str) -> String {
        format!("{}_{status}", self.schema())
    }
}

/// A response in JSON.
pub(super) fn response(description: &str, schema: Json) -> Json {
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// A reference to the schema of this name.
pub(super) fn reference(schema: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// Adds the error responses with these statuses to an operation.
pub(super) fn with_errors(operation: &mut Json, form: ErrorShape, statuses: &[&str]) {
    for status in statuses {
        operation["responses"][*status] = json!({ "$ref": format!("#/components/responses/{}", form.name(status)) });
    }
}

/// An operation that needs no key.
pub(super) fn open(mut operation: Json) -> Json {
    operation["security"] = json!([]);
    operation
}

/// An operation that needs a key if the operator has configured keys.
pub(super) fn guarded(mut operation: Json, form: ErrorShape) -> Json {
    with_errors(&mut operation, form, &["401", "403", "429"]);
    operation
}

/// Every response that operations refer to.
pub(super) fn responses() -> Json {
    let one = |form: ErrorShape, status: &str, meaning: &str| {
        let mut answer = response(meaning, reference(form.schema()));
        if matches!(status, "429" | "503") {
            answer["headers"]["Retry-After"] = json!({
                "description": "seconds after which it may be otherwise",
                "schema": { "type": "integer", "minimum": 0 },
            });
        }
        (form.name(status), answer)
    };
    let all = ErrorShape::ALL.into_iter().flat_map(|form| MEANINGS.map(|(status, meaning)| one(form, status, meaning)));
    Json::Object(all.collect())
}

/// Schemas of errors, by name.
pub(super) fn schemas() -> Map<String, Json> {
    let own = json!({
        "type": "object",
        "description": "Why there is no result",
        "properties": {
            "error": { "type": "string", "description": "its kind, such as `ValidationError`" },
            "message": { "type": "string", "description": "what happened, and what to do about it" },
            "details": { "type": "object", "description": "the input, the step or the limit it is about" },
        },
        "required": ["error", "message", "details"],
    });
    let protocol = json!({
        "type": "object",
        "description": "Why there is no result, as the Open Inference Protocol says it",
        "properties": { "error": { "type": "string" } },
        "required": ["error"],
        "additionalProperties": false,
    });
    let nullable = json!({ "type": ["string", "null"] });
    let openai = json!({
        "type": "object",
        "description": "Why there is no result, as OpenAI's API says it",
        "properties": { "error": {
            "type": "object",
            "properties": {
                "message": { "type": "string" }, "type": { "type": "string" }, "param": nullable, "code": nullable,
            },
            "required": ["message", "type", "param", "code"],
        } },
        "required": ["error"],
    });
    let text = json!({ "type": "string" });
    let rerank = json!({
        "type": "object",
        "description": "Why there is no result, in `message` for Cohere's clients and in `detail` for Jina's",
        "properties": { "message": text, "detail": text },
        "required": ["message", "detail"],
    });
    let tei = json!({
        "type": "object",
        "description": "Why there is no result, as Text Embeddings Inference says it",
        "properties": { "error": text, "error_type": { "enum": ["Overloaded", "Validation", "Backend"] } },
        "required": ["error", "error_type"],
    });
    [
        (ErrorShape::Own, own),
        (ErrorShape::Protocol, protocol),
        (ErrorShape::OpenAi, openai),
        (ErrorShape::Rerank, rerank),
        (ErrorShape::Tei, tei),
    ]
    .map(|(form, schema)| (form.schema().to_owned(), schema))
    .into_iter()
    .collect()
}
