use std::fmt::{self, Write as _};

use serde::de::{Error, Expected, Unexpected};

/// What does not fit, and where.
#[derive(Debug)]
pub(super) struct Fault {
    /// Such as `.sizes[1]`; written from the inside out.
    place: String,
    why: String,
}

impl Fault {
    /// The same fault, seen from the object whose `key` it is under.
    #[cold]
    pub(super) fn under_key(mut self, key: &str) -> Self {
        self.place = [".", key, &self.place].concat();
        self
    }

    /// The same fault, seen from the array whose item it is in.
    #[cold]
    pub(super) fn in_item(mut self, index: usize) -> Self {
        let mut place = String::new();
        let _ = write!(place, "[{index}]");
        self.place = place + &self.place;
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.strip_prefix('.').unwrap_or(&self.place);
        if place.is_empty() { f.write_str(&self.why) } else { write!(f, "`{place}`: {}", self.why) }
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    #[cold]
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self { place: String::new(), why: why.to_string() }
    }

    /// Without the number itself, whose formatting is larger than the rest of this reader.
    #[cold]
    fn invalid_type(is: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::custom(format_args!("{}, not {wanted}", kind(is)))
    }

    #[cold]
    fn invalid_value(is: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::custom(format_args!("a value that is not {wanted}, but {}", kind(is)))
    }
}

fn kind(is: Unexpected<'_>) -> &'static str {
    match is {
        Unexpected::Bool(true) => "true",
        Unexpected::Bool(false) => "false",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
        Unexpected::Float(_) => "a number with a fraction",
        Unexpected::Char(_) | Unexpected::Str(_) => "text",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "an array",
        Unexpected::Map => "an object",
        Unexpected::NewtypeStruct | Unexpected::Bytes(_) | Unexpected::Other(_) => "something else",
        Unexpected::Enum | Unexpected::UnitVariant | Unexpected::NewtypeVariant => "a name",
        Unexpected::TupleVariant | Unexpected::StructVariant => "a name with content",
    }
}
