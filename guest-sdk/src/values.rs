use crate::{Error, Tensor};

/// One value of a request.
#[derive(Debug)]
pub enum Value {
    /// Numbers, booleans or texts with a shape.
    Tensor(Tensor),
    /// UTF-8 text.
    Text(String),
    /// An encoded image, a sound file, any bytes.
    Bytes(Vec<u8>),
    /// A JSON document, as text.
    Json(String),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
            Self::Json(_) => "JSON",
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Named values: what a request brings, what a step gives, what a built-in step or a model answers.
///
/// The getters say the caller is at fault when a value is of another kind, and the step itself when
/// it asks for a name that it does not have.
///
/// ```
/// # use gpux_step::{Tensor, Values};
/// let mut values = Values::from([("scores", Tensor::of([2], &[0.25_f32, 0.75])?)]).with("prompt", "a cat");
/// assert_eq!(values.text("prompt")?, "a cat");
/// assert_eq!(values.tensor("scores")?.shape(), [2]);
/// assert_eq!(values.tensor("prompt").unwrap_err().message(), "`prompt` is text, not a tensor");
/// let scores = values.take_tensor("scores")?;
/// assert!(values.get("scores").is_none());
/// # Ok::<(), gpux_step::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Values(pub(crate) Vec<(String, Value)>);

impl Values {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// These and one more: `value`, written as JSON. Error: it has no JSON, such as a map whose
    /// keys are not text.
    pub fn with_json(self, name: impl Into<String>, value: &impl serde::Serialize) -> Result<Self, Error> {
        let text = serde_json::to_string(value).map_err(|error| Error::Failed(error.to_string()))?;
        Ok(self.with(name, Value::Json(text)))
    }

    /// The value of this name; `None` where an optional one was left out.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Takes the value of this name out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let place = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.remove(place).1)
    }

    /// Takes the first value out, whatever its name: the answer of a built-in step or a model with
    /// one output.
    pub fn take_first(&mut self) -> Option<Value> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0).1) }
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        match self.existing(name)? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(wrong_kind(name, other, "a tensor")),
        }
    }

    /// Takes the tensor of this name out, to give it on or to change it.
    pub fn take_tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        match self.take(name).ok_or_else(|| missing(name))? {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(wrong_kind(name, &other, "a tensor")),
        }
    }

    /// Takes the first value out, which must be a tensor: the answer of a built-in step or a model
    /// with one output.
    pub fn take_first_tensor(&mut self) -> Result<Tensor, Error> {
        match self.take_first() {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            Some(other) => Err(wrong_kind("the first value", &other, "a tensor")),
            None => Err(Error::Failed("there is no value".into())),
        }
    }

    /// The text of this name.
    pub fn text(&self, name: &str) -> Result<&str, Error> {
        match self.existing(name)? {
            Value::Text(text) => Ok(text),
            other => Err(wrong_kind(name, other, "text")),
        }
    }

    /// The bytes of this name.
    pub fn bytes(&self, name: &str) -> Result<&[u8], Error> {
        match self.existing(name)? {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(wrong_kind(name, other, "bytes")),
        }
    }

    /// The JSON of this name, read as `T`. What does not fit `T` is the caller's fault.
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self, name: &str) -> Result<T, Error> {
        match self.existing(name)? {
            Value::Json(text) => crate::json::read(text)
                .map_err(|why| Error::InvalidInput(["`", name, "` does not fit: ", &why].concat())),
            other => Err(wrong_kind(name, other, "JSON")),
        }
    }

    /// Every value with its name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn existing(&self, name: &str) -> Result<&Value, Error> {
        self.get(name).ok_or_else(|| missing(name))
    }
}

impl<N: Into<String>, V: Into<Value>, const COUNT: usize> From<[(N, V); COUNT]> for Values {
    fn from(values: [(N, V); COUNT]) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl IntoIterator for Values {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cold]
fn missing(name: &str) -> Error {
    Error::Failed(["there is no value `", name, "`"].concat())
}

#[cold]
fn wrong_kind(name: &str, is: &Value, wanted: &str) -> Error {
    Error::InvalidInput(["`", name, "` is ", is.kind(), ", not ", wanted].concat())
}
