use crate::Tensor;

/// A value lent to a built-in step or a model: you keep it.
#[derive(Clone, Copy, Debug)]
pub enum Lent<'a> {
    /// Numbers, booleans or texts with a shape.
    Tensor(&'a Tensor),
    /// UTF-8 text.
    Text(&'a str),
    /// Any bytes.
    Bytes(&'a [u8]),
    /// A JSON document, as text.
    Json(&'a str),
}

impl<'a> From<&'a Tensor> for Lent<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'a> From<&'a str> for Lent<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Lent<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// What a built-in step or a model is called with: one value; several in the order of its inputs;
/// or several by name.
///
/// ```
/// # use gpux_step::{Arguments, Lent, Tensor};
/// # let (tokens, mask) = (Tensor::zeros::<i64>([1, 4])?, Tensor::zeros::<i64>([1, 4])?);
/// let one = Arguments::from(&tokens);
/// let in_order = Arguments::from([&tokens, &mask]);
/// let by_name = Arguments::from([("tokens", &tokens), ("mask", &mask)]);
/// let of_any_kind = Arguments::from([("tokens", Lent::from(&tokens)), ("prompt", Lent::from("a cat"))]);
/// # Ok::<(), gpux_step::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arguments<'a>(pub(crate) Vec<(&'a str, Lent<'a>)>);

impl<'a, T: Into<Lent<'a>>> From<T> for Arguments<'a> {
    fn from(value: T) -> Self {
        Self(vec![("", value.into())])
    }
}

impl<'a, T: Into<Lent<'a>>, const COUNT: usize> From<[T; COUNT]> for Arguments<'a> {
    fn from(values: [T; COUNT]) -> Self {
        Self(values.into_iter().map(|value| ("", value.into())).collect())
    }
}

impl<'a, T: Into<Lent<'a>>, const COUNT: usize> From<[(&'a str, T); COUNT]> for Arguments<'a> {
    fn from(values: [(&'a str, T); COUNT]) -> Self {
        Self(values.into_iter().map(|(name, value)| (name, value.into())).collect())
    }
}

impl<'a> From<Vec<(&'a str, Lent<'a>)>> for Arguments<'a> {
    fn from(values: Vec<(&'a str, Lent<'a>)>) -> Self {
        Self(values)
    }
}
