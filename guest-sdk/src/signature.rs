use crate::{Element, ElementType, Layout};

/// What a step takes and gives, given its options. gpux checks the plan against it before any
/// request, and every result after.
///
/// ```
/// # use gpux_step::{Dim, Port, Signature};
/// let signature = Signature::new()
///     .input(Port::tensor::<f32>("boxes").shape([Dim::named("boxes"), Dim::from(4)]).about("x1, y1, x2, y2 in pixels"))
///     .input(Port::text("prompt").optional())
///     .output(Port::json("objects"));
/// assert_eq!((signature.inputs.len(), signature.outputs.len()), (2, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// What the step takes, in order.
    pub inputs: Vec<Port>,
    /// What the step gives; at least one.
    pub outputs: Vec<Port>,
}

impl Signature {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more input.
    #[must_use]
    pub fn input(mut self, port: Port) -> Self {
        self.inputs.push(port);
        self
    }

    /// One more output.
    #[must_use]
    pub fn output(mut self, port: Port) -> Self {
        self.outputs.push(port);
        self
    }
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the frame.
    pub name: String,
    /// What it takes or gives.
    pub kind: Kind,
    /// Whether an input may be left out; an output may not.
    pub optional: bool,
    /// One line for people.
    pub description: String,
}

impl Port {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, optional: false, description: String::new() }
    }

    /// A value of any kind.
    pub fn any(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Any)
    }

    /// UTF-8 text.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Text)
    }

    /// An encoded image, a sound file, any bytes.
    pub fn bytes(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Bytes)
    }

    /// A JSON document.
    pub fn json(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Json)
    }

    /// A tensor of `T` in any shape.
    pub fn tensor<T: Element>(name: impl Into<String>) -> Self {
        Self::tensor_of(name, [T::TYPE])
    }

    /// A tensor of one of the `elements`, or of anything where there are none, in any shape.
    pub fn tensor_of(name: impl Into<String>, elements: impl IntoIterator<Item = ElementType>) -> Self {
        let elements = elements.into_iter().collect();
        Self::new(name, Kind::Tensor(TensorKind { elements, shape: None, layout: None }))
    }

    /// An image of `T`: height, width and this many channels, in this order.
    pub fn image<T: Element>(name: impl Into<String>, channels: impl Into<Dim>) -> Self {
        Self::tensor::<T>(name).shape([Dim::Any, Dim::Any, channels.into()]).layout(Layout::Hwc)
    }

    /// The dimensions, outermost first. Only a tensor has any.
    #[must_use]
    pub fn shape(mut self, dims: impl IntoIterator<Item = Dim>) -> Self {
        if let Kind::Tensor(tensor) = &mut self.kind {
            tensor.shape = Some(dims.into_iter().collect());
        }
        self
    }

    /// The order of the axes, for an image. Only a tensor has any.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        if let Kind::Tensor(tensor) = &mut self.kind {
            tensor.layout = Some(layout);
        }
        self
    }

    /// An input that may be left out.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// One line for people.
    #[must_use]
    pub fn about(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }
}

/// What is known about a value before it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    Any,
    /// A tensor.
    Tensor(TensorKind),
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// JSON.
    Json,
}

/// What is known about a tensor before it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorKind {
    /// Which element types it may have; empty for any.
    pub elements: Vec<ElementType>,
    /// Its dimensions, outermost first; `None` when even the number of axes is open.
    pub shape: Option<Vec<Dim>>,
    /// The order of its axes, if it is an image.
    pub layout: Option<Layout>,
}

/// One dimension of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Exactly this many.
    Fixed(u32),
    /// Any number, decided by each request.
    Any,
    /// Any number, the same wherever this name stands.
    Named(String),
}

impl Dim {
    /// Any number, the same wherever this name stands.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }
}

impl From<u32> for Dim {
    fn from(size: u32) -> Self {
        Self::Fixed(size)
    }
}
