use std::fmt;
use std::ops::Deref;

use crate::{Color, Element, ElementType, Error, Geometry, Layout, Transform, host};

/// A tensor: a handle to elements that live on the host, row-major (the last axis varies fastest).
///
/// Nothing is copied until you ask for elements: [`view`](Self::view) brings all of them over at
/// once, [`read`](Self::read) a part; [`stream`](crate::stream) walks through a small buffer. What
/// you [`write`](Self::write) nobody else sees who holds the same tensor.
///
/// ```
/// # use gpux_step::{Layout, Tensor};
/// let mut image = Tensor::of([2, 2, 1], &[10_u8, 20, 30, 40])?;
/// image.set_layout(Some(Layout::Hwc));
/// image.write(1, &[21_u8])?;
/// assert_eq!(image.view::<u8>()?.to_vec(), [10, 21, 30, 40]);
/// assert_eq!(image.view::<f32>().unwrap_err().message(), "the tensor holds uint8, not float32");
/// # Ok::<(), gpux_step::Error>(())
/// ```
pub struct Tensor(pub(crate) host::Tensor);

impl Tensor {
    /// A tensor with these elements. Error: not as many as `shape` holds.
    pub fn of<T: Element>(shape: impl AsRef<[u32]>, elements: &[T]) -> Result<Self, Error> {
        Self::from_bytes(T::TYPE, shape, T::bytes(elements))
    }

    /// A tensor with these little-endian bytes. Error: not as many as `shape` holds elements, or
    /// `element` is [`Text`](ElementType::Text).
    pub fn from_bytes(element: ElementType, shape: impl AsRef<[u32]>, bytes: &[u8]) -> Result<Self, Error> {
        host::Tensor::create(element, shape.as_ref(), bytes).map(Self).map_err(Error::Failed)
    }

    /// A tensor of texts. Error: not as many as `shape` holds.
    pub fn of_texts(shape: impl AsRef<[u32]>, texts: &[String]) -> Result<Self, Error> {
        host::Tensor::create_text(shape.as_ref(), texts).map(Self).map_err(Error::Failed)
    }

    /// A tensor of zeros (`false` for booleans), made on the host. Error: it is too large.
    pub fn zeros<T: Element>(shape: impl AsRef<[u32]>) -> Result<Self, Error> {
        host::Tensor::zeros(T::TYPE, shape.as_ref()).map(Self).map_err(Error::Failed)
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        self.0.element()
    }

    /// Elements along each axis, outermost first; empty for a scalar.
    pub fn shape(&self) -> Vec<u32> {
        self.0.shape()
    }

    /// The sizes of exactly `N` axes. Error, the caller's fault: it has another number of axes.
    ///
    /// ```
    /// # use gpux_step::Tensor;
    /// let [height, width, channels] = Tensor::zeros::<u8>([4, 6, 3])?.dims()?;
    /// assert_eq!((height, width, channels), (4, 6, 3));
    /// # Ok::<(), gpux_step::Error>(())
    /// ```
    pub fn dims<const N: usize>(&self) -> Result<[usize; N], Error> {
        let shape = self.shape();
        match <[u32; N]>::try_from(shape.as_slice()) {
            Ok(dims) => Ok(dims.map(|dim| dim as usize)),
            Err(_) => Err(Error::InvalidInput(format!("the tensor has {} axes, not {N}", shape.len()))),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().map(|dim| *dim as usize).product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements, brought over in one piece. Error, the caller's fault: it holds another type.
    pub fn view<T: Element>(&self) -> Result<Elements<T>, Error> {
        self.expect::<T>()?;
        Ok(Elements::new(self.0.data()))
    }

    /// `len` elements from element `start` on. Error: another type, or the range leaves the tensor.
    pub fn read<T: Element>(&self, start: usize, len: usize) -> Result<Elements<T>, Error> {
        self.expect::<T>()?;
        self.read_unchecked(start, len)
    }

    /// Fills `into` with the elements from element `start` on. Error as [`read`](Self::read).
    pub fn read_into<T: Element>(&self, start: usize, into: &mut [T]) -> Result<(), Error> {
        self.expect::<T>()?;
        let bytes = self.read_bytes::<T>(start, into.len())?;
        T::fill(into, &bytes);
        Ok(())
    }

    /// Overwrites the elements from element `start` on. Error, the step's fault: another type, or
    /// they do not fit.
    pub fn write<T: Element>(&mut self, start: usize, elements: &[T]) -> Result<(), Error> {
        self.expect_own::<T>()?;
        self.write_unchecked(start, elements)
    }

    /// All elements as little-endian bytes. Error: it holds texts.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        match self.element() {
            ElementType::Text => {
                Err(Error::InvalidInput("the tensor holds texts, which have no bytes in a row".into()))
            }
            _ => Ok(self.0.data()),
        }
    }

    /// All texts. Error, the caller's fault: it holds another type.
    pub fn texts(&self) -> Result<Vec<String>, Error> {
        self.0.texts().map_err(Error::InvalidInput)
    }

    /// Order of the axes, if it is known to be an image.
    pub fn layout(&self) -> Option<Layout> {
        self.0.layout()
    }

    /// Says what the order of the axes is.
    pub fn set_layout(&mut self, layout: Option<Layout>) {
        self.0.set_layout(layout);
    }

    /// Meaning of the channels, if it is known to be an image.
    pub fn color(&self) -> Option<Color> {
        self.0.color()
    }

    /// Says what the channels hold.
    pub fn set_color(&mut self, color: Option<Color>) {
        self.0.set_color(color);
    }

    /// Samples a second, if it is known to be sound.
    pub fn sample_rate(&self) -> Option<u32> {
        self.0.sample_rate()
    }

    /// Says how many samples make a second.
    pub fn set_sample_rate(&mut self, hertz: Option<u32>) {
        self.0.set_sample_rate(hertz);
    }

    /// Where the source image lies in this tensor, if known.
    pub fn geometry(&self) -> Option<Geometry> {
        self.0.geometry()
    }

    /// Says where the source image lies in this tensor.
    pub fn set_geometry(&mut self, geometry: Option<Geometry>) {
        self.0.set_geometry(geometry);
    }

    /// The way back to the source image where it is no [`Geometry`]: the image was rotated or warped.
    pub fn transform(&self) -> Option<Transform> {
        self.0.transform()
    }

    /// Says how to get back to the source image.
    pub fn set_transform(&mut self, transform: Option<Transform>) {
        self.0.set_transform(transform);
    }

    /// Takes over layout, color, sample rate, geometry and transform of `source`.
    pub fn copy_metadata(&mut self, source: &Self) {
        self.0.copy_metadata(&source.0);
    }

    pub(crate) fn expect<T: Element>(&self) -> Result<(), Error> {
        let element = self.element();
        if element == T::TYPE { Ok(()) } else { Err(wrong_element(element, T::TYPE)) }
    }

    /// As [`expect`](Self::expect), of a tensor that the step is to write.
    pub(crate) fn expect_own<T: Element>(&self) -> Result<(), Error> {
        self.expect::<T>().map_err(|error| Error::failed(error.message()))
    }

    /// As [`read`](Self::read), where the type has been checked.
    pub(crate) fn read_unchecked<T: Element>(&self, start: usize, len: usize) -> Result<Elements<T>, Error> {
        self.read_bytes::<T>(start, len).map(Elements::new)
    }

    /// As [`write`](Self::write), where the type has been checked.
    pub(crate) fn write_unchecked<T: Element>(&mut self, start: usize, elements: &[T]) -> Result<(), Error> {
        self.0.write(byte_offset::<T>(start), T::bytes(elements)).map_err(Error::Failed)
    }

    fn read_bytes<T: Element>(&self, start: usize, len: usize) -> Result<Vec<u8>, Error> {
        self.0.read(byte_offset::<T>(start), byte_offset::<T>(len)).map_err(Error::Failed)
    }
}

/// The same in bytes. What does not fit leaves every tensor, and the host refuses it.
fn byte_offset<T>(elements: usize) -> u32 {
    u32::try_from(elements.saturating_mul(size_of::<T>())).unwrap_or(u32::MAX)
}

#[cold]
fn wrong_element(is: ElementType, wanted: ElementType) -> Error {
    Error::InvalidInput(["the tensor holds ", is.name(), ", not ", wanted.name()].concat())
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor {}{:?}", self.element(), self.shape())
    }
}

/// Elements that were brought over from the host: a slice of `T`.
pub struct Elements<T>(Storage<T>);

enum Storage<T> {
    /// As they came, aligned for `T`.
    Bytes(Vec<u8>),
    Copied(Vec<T>),
}

impl<T: Element> Elements<T> {
    fn new(bytes: Vec<u8>) -> Self {
        Self(if T::view(&bytes).is_some() { Storage::Bytes(bytes) } else { Storage::Copied(T::collect(&bytes)) })
    }

    /// The elements. In a loop, take this slice once before it.
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            Storage::Bytes(bytes) => T::view(bytes).unwrap_or_default(),
            Storage::Copied(elements) => elements,
        }
    }
}

impl<T: Element> Deref for Elements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Elements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}
