//! Parses a body into requests.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use serde_json::error::Category;

use crate::ServeError;
use crate::engine::body_budget::RequestBudget;
use crate::protocol::http::json_text::{self, Scope};
use gpux_core::{BoundedJsonTree, Kind, PlanSignature, Request, Table, TableOptions, ValidationError};

/// The media type of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    /// JSON
    Json,
    /// none, or curl's default
    Unstated,
    /// a form, with its boundary
    Form(String),
    /// a tensor in NumPy's file format
    Npy,
    /// the content of one file
    File,
    /// a text
    Text,
    /// a table: a request for each row
    Table(TableOptions),
}

/// The most requests of one list: each may be a few bytes with a much larger response.
const MAX_REQUESTS: usize = 10_000;

/// One request, or a list of them.
pub(crate) enum Requests {
    One(Request),
    List(Vec<Result<Request, ValidationError>>),
}

impl MediaType {
    /// From `Content-Type`.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Self, ServeError> {
        let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Self::Unstated) };
        let value = value.to_str().map_err(|_| ServeError::MediaType("the content type is not text".to_owned()))?;
        let name = value.split(';').next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("application/json") {
            return Ok(Self::Json);
        }
        Ok(match name.to_ascii_lowercase().as_str() {
            // curl's default.
            "" | "application/x-www-form-urlencoded" => Self::Unstated,
            "multipart/form-data" => {
                Self::Form(multer::parse_boundary(value).map_err(|error| ServeError::MediaType(error.to_string()))?)
            }
            "application/x-npy" => Self::Npy,
            "text/plain" => Self::Text,
            "text/csv" => Self::Table(table_options(value, None)?),
            "text/tab-separated-values" => Self::Table(table_options(value, Some(b'\t'))?),
            "application/octet-stream" => Self::File,
            name if ["image/", "audio/"].iter().any(|kind| name.starts_with(kind)) => Self::File,
            other => {
                let message = format!(
                    "a body of type `{other}` is not read; send application/json, multipart/form-data, image/*, \
                     audio/*, text/plain, text/csv, application/octet-stream or application/x-npy"
                );
                return Err(ServeError::MediaType(message));
            }
        })
    }
}

impl MediaType {
    /// The type that the body looks like, if none is stated: JSON (lists and objects, even broken ones, texts in quotes,
    /// numbers, and nothing) or a tensor in NumPy's format; else it stays unstated, which is read as a file.
    pub(crate) fn or_guess(self, body: &[u8]) -> Self {
        /// The longest number.
        const LONGEST: usize = 64;
        let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body).trim_ascii();
        match self {
            Self::Unstated if body.starts_with(NPY) => Self::Npy,
            Self::Unstated if matches!(body.first(), None | Some(b'{' | b'[' | b'"')) => Self::Json,
            Self::Unstated if body.len() <= LONGEST && serde_json::from_slice::<IgnoredAny>(body).is_ok() => Self::Json,
            other => other,
        }
    }
}

impl Requests {
    /// Parses a body.
    ///
    /// `budget` is that of a large body, for a copy of it.
    pub(crate) fn read(
        signature: &PlanSignature,
        media_type: &MediaType,
        body: &Bytes,
        budget: Option<&RequestBudget>,
    ) -> Result<Self, ServeError> {
        let reader = signature.reader(&[]);
        match media_type {
            MediaType::Form(boundary) => {
                // The whole body is in memory, so the future never waits.
                let read = Self::of_form(signature, boundary, body.clone()).now_or_never();
                read.unwrap_or_else(|| Err(ServeError::Body("the form does not end".to_owned()))).map(Self::One)
            }
            MediaType::Npy => Ok(Self::One(reader.npy(body)?)),
            MediaType::File => Ok(Self::One(reader.payload(body.to_vec())?)),
            MediaType::Text => Ok(Self::One(reader.payload(json_text::utf8(body)?.to_vec())?)),
            // Bytes are the file itself.
            MediaType::Table(_) if reader.single().is_some_and(|port| port.kind == Kind::Bytes) => {
                Ok(Self::One(reader.payload(body.to_vec())?))
            }
            MediaType::Table(options) => Self::of_table(signature, *options, body.clone()).map(Self::List),
            MediaType::Unstated => reader.payload(body.to_vec()).map(Self::One).map_err(|error| {
                if let Err(error) = json_text::utf8(body) {
                    return error;
                }
                let message = format!(
                    "{}; without a header `Content-Type` (application/json, application/x-npy, multipart/form-data), the body was \
                     taken for a file",
                    error.message
                );
                ValidationError { message, ..error }.into()
            }),
            MediaType::Json => {
                let text = json_text::utf8(body)?;
                let error = match Self::of_text(signature, text)? {
                    Ok(read) => return Ok(read),
                    Err(error) => error,
                };
                if json_text::are_in(text, Scope::ListsAndFields) {
                    let _permit = budget.map(|budget| budget.reserve(json_text::budget(text))).transpose()?;
                    let quoted = json_text::quoted(text, Scope::ListsAndFields).unwrap_or_default();
                    if let Ok(read) = Self::of_text(signature, &quoted)? {
                        return Ok(read);
                    }
                }
                Err(ServeError::invalid(format!("not JSON: {error}")))
            }
        }
    }

    /// Parses JSON; the inner error is one of its syntax.
    fn of_text(signature: &PlanSignature, text: &[u8]) -> Result<Result<Self, serde_json::Error>, ServeError> {
        let reader = signature.reader(&[]);
        if let Some(request) = reader.json_text(text) {
            return Ok(Ok(Self::One(request?)));
        }
        if let Some(requests) = reader.json_texts(text, MAX_REQUESTS) {
            return Ok(Ok(Self::List(requests?)));
        }
        json(text)?.map(|json| Self::of_json(signature, json)).map_or_else(|error| Ok(Err(error)), |read| read.map(Ok))
    }

    fn of_table(
        signature: &PlanSignature,
        options: TableOptions,
        body: Bytes,
    ) -> Result<Vec<Result<Request, ValidationError>>, ServeError> {
        let reader = signature.reader(&[]);
        let mut table = Table::open(std::io::Cursor::new(body), options, reader)?;
        if table.unchecked_header().is_some() {
            return Err(ServeError::invalid(
                "the pipeline does not name the columns of its input, so that the header cannot be checked: add \
                 `columns:` to the input in gpux.yml, or send the rows alone as `text/csv; header=absent`",
            ));
        }
        let mut requests = Vec::new();
        while let Some(request) = table.next(reader) {
            if requests.len() == MAX_REQUESTS {
                return Err(ServeError::invalid(format!("a table has at most {MAX_REQUESTS} rows; send it in parts")));
            }
            requests.push(request);
        }
        Ok(requests)
    }

    fn of_json(signature: &PlanSignature, json: Json) -> Result<Self, ServeError> {
        let reader = signature.reader(&[]);
        match json {
            Json::Array(items) if !items.is_empty() && reader.is_batch(&items) => {
                if items.len() > MAX_REQUESTS {
                    let message = format!("a list has at most {MAX_REQUESTS} requests, but this has {}", items.len());
                    return Err(ServeError::invalid(message));
                }
                Ok(Self::List(items.into_iter().map(|item| reader.json(item)).collect()))
            }
            json => Ok(Self::One(reader.json(json)?)),
        }
    }

    /// Parses the fields of a form: each is an input, as a file or as text. A field with an unknown name is taken for
    /// the only input that takes a file, as when a browser sends an image. A repeated input is rejected before it is
    /// read, so a form has at most as many fields as there are inputs.
    async fn of_form(signature: &PlanSignature, boundary: &str, body: Bytes) -> Result<Request, ServeError> {
        let stream = futures_util::stream::once(ready(Ok::<_, Infallible>(body)));
        let mut form = multer::Multipart::new(stream, boundary);
        let mut request = Request::new();
        let broken = |error: multer::Error| ServeError::Body(error.to_string());
        while let Some(field) = form.next_field().await.map_err(broken)? {
            let name = field.name().unwrap_or_default().to_owned();
            if request.len() >= signature.inputs().len() || request.iter().any(|(known, _)| *known == name) {
                return Err(one_too_many(signature, &name).into());
            }
            let bytes = field.bytes().await.map_err(broken)?;
            match signature.port(&name) {
                Some(port) => request.push((name, port.field(bytes.to_vec())?)),
                None => request.extend(signature.reader(&request).payload(bytes.to_vec())?),
            }
        }
        Ok(request)
    }
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The most memory that the requests of a table take: a number of a few bytes becomes an element, and each input of a
/// row a tensor with its name.
pub(super) fn table_bytes(body: &[u8], signature: &PlanSignature) -> usize {
    const ELEMENT: usize = 24;
    const TENSOR: usize = 512;
    let count = |wanted: &[u8]| body.iter().filter(|byte| wanted.contains(byte)).count();
    let rows = count(b"\n\r").saturating_add(1).min(MAX_REQUESTS);
    let cells = count(b",;\t\n\r").saturating_add(1);
    let tensors = rows.saturating_mul(signature.inputs().len()).saturating_mul(TENSOR);
    cells.saturating_mul(ELEMENT).saturating_add(tensors).saturating_add(body.len())
}

/// From the parameter `header` of `text/csv`, RFC 4180.
fn table_options(content_type: &str, delimiter: Option<u8>) -> Result<TableOptions, ServeError> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut headers = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("header"));
    let has_header = match headers.next().map(|(_, value)| value.trim().trim_matches('"').to_ascii_lowercase()) {
        None => None,
        Some(value) if value == "present" => Some(true),
        Some(value) if value == "absent" => Some(false),
        Some(_) => return Err(ServeError::MediaType("`header` of text/csv is `present` or `absent`".to_owned())),
    };
    Ok(TableOptions { delimiter, has_header, ignores_extra: false })
}

/// The first bytes of a file in NumPy's format.
const NPY: &[u8] = b"\x93NUMPY";

/// The error for a field whose input was already given.
fn one_too_many(signature: &PlanSignature, name: &str) -> ValidationError {
    match signature.port(name) {
        Some(_) => ValidationError::input(name, "the form gives it twice"),
        None => ValidationError::request(format!(
            "the form has a field for each input already, and `{name}` beside those; the pipeline takes {}",
            signature.describe_inputs()
        )),
    }
}

/// The tree of a text; the inner error is one of its syntax.
fn json(body: &[u8]) -> Result<Result<Json, serde_json::Error>, ServeError> {
    if body.trim_ascii().is_empty() {
        return Err(ServeError::invalid("the request has no body"));
    }
    match serde_json::from_slice::<BoundedJsonTree>(body) {
        Ok(tree) => Ok(Ok(tree.0)),
        // Valid JSON, but it exceeds a limit.
        Err(error) if error.classify() == Category::Data => Err(ServeError::invalid(error.to_string())),
        Err(error) => Ok(Err(error)),
    }
}
