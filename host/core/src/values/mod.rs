//! Values, their kinds, and their elements.

pub(crate) mod device_tensor;
pub(crate) mod element;
pub mod encoded_size;
pub(crate) mod npy;
pub(crate) mod signature;
mod strided_copy;
pub(crate) mod tensor;
pub(crate) mod value;
