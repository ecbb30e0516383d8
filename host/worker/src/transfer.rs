//! Values as bytes, between two processes of one machine: native byte order, each value behind its kind.
//!
//! The reading side trusts nothing: every length is checked against the bytes that are left, and what a value takes in
//! memory is charged, before memory is taken.

use std::io::{self, Read, Write};

use bytemuck::Pod;
use half::{bf16, f16};

use gpux_core::{
    BoundedJsonTree, Color, ElementType, Geometry, Layout, MAX_AXES, Metadata, Tensor, TensorData, TensorElement,
    Transform, Value, element_count, json_decoded_size,
};

/// A source of bytes that knows how many are left.
pub(crate) trait BoundedRead: Read {
    /// The bytes that are left.
    fn left(&self) -> usize;

    /// Charges memory that is about to be taken; fails if it may not be.
    fn charge(&mut self, bytes: usize) -> io::Result<()>;
}

/// A value and its name, without what they refer to: a tensor has its shape and its elements' owner on the heap.
const NAMED_VALUE: usize = size_of::<(String, Value)>() + size_of::<Tensor>() + 256;

/// An allocation, beside its bytes.
const ALLOCATION: usize = 32;

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

pub(crate) fn write_u32(to: &mut impl Write, number: u32) -> io::Result<()> {
    to.write_all(&number.to_ne_bytes())
}

pub(crate) fn write_u64(to: &mut impl Write, number: u64) -> io::Result<()> {
    to.write_all(&number.to_ne_bytes())
}

/// Bytes behind their length.
pub(crate) fn write_bytes(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    write_u64(to, bytes.len() as u64)?;
    to.write_all(bytes)
}

pub(crate) fn read_u8(from: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

pub(crate) fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

pub(crate) fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn read_size(from: &mut impl Read) -> io::Result<usize> {
    usize::try_from(read_u64(from)?).map_err(|_| invalid("a size beyond this machine's"))
}

/// What [`write_bytes`] wrote.
fn read_bytes(from: &mut impl BoundedRead) -> io::Result<Vec<u8>> {
    read_bytes_within(from, usize::MAX, "bytes")
}

/// The same of `what`, at most so many bytes.
pub(crate) fn read_bytes_within(from: &mut impl BoundedRead, most: usize, what: &str) -> io::Result<Vec<u8>> {
    let len = read_size(from)?;
    if len > most {
        return Err(invalid(format!("{what} of {len} bytes, where there can be {most}")));
    }
    if len > from.left() {
        return Err(invalid("bytes that end too early"));
    }
    from.charge(if len == 0 { 0 } else { len + ALLOCATION })?;
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_string(from: &mut impl BoundedRead) -> io::Result<String> {
    String::from_utf8(read_bytes(from)?).map_err(|_| invalid("text that is not UTF-8"))
}

/// Levels that JSON may nest.
const JSON_DEPTH: usize = 127;

/// Memory that the tree of one JSON value takes at most, in bytes.
const JSON_MEMORY: usize = 512 << 20;

const TENSOR: u8 = 0;
const TEXT: u8 = 1;
const BYTES: u8 = 2;
const JSON: u8 = 3;

/// Writes named values.
pub(crate) fn write_values(to: &mut impl Write, values: &[(String, Value)]) -> io::Result<()> {
    write_u32(to, values.len() as u32)?;
    for (name, value) in values {
        write_bytes(to, name.as_bytes())?;
        write_value(to, value)?;
    }
    Ok(())
}

/// Reads what [`write_values`] wrote: at most `most` values.
pub(crate) fn read_values(from: &mut impl BoundedRead, most: usize) -> io::Result<Vec<(String, Value)>> {
    let count = read_u32(from)? as usize;
    if count > most {
        return Err(invalid(format!("{count} values, where there can be {most}")));
    }
    // Not allocated at once: the number is the other side's word.
    let read = |_| {
        from.charge(NAMED_VALUE)?;
        Ok((read_string(from)?, read_value(from)?))
    };
    (0..count).map(read).collect()
}

fn write_value(to: &mut impl Write, value: &Value) -> io::Result<()> {
    match value {
        Value::Tensor(tensor) => {
            to.write_all(&[TENSOR])?;
            write_tensor(to, tensor)
        }
        Value::Text(text) => {
            to.write_all(&[TEXT])?;
            write_bytes(to, text.as_bytes())
        }
        Value::Bytes(bytes) => {
            to.write_all(&[BYTES])?;
            write_bytes(to, bytes)
        }
        Value::Json(json) => {
            to.write_all(&[JSON])?;
            write_bytes(to, &serde_json::to_vec(json)?)
        }
    }
}

fn read_value(from: &mut impl BoundedRead) -> io::Result<Value> {
    Ok(match read_u8(from)? {
        TENSOR => Value::Tensor(read_tensor(from)?),
        TEXT => Value::from(read_string(from)?),
        BYTES => Value::from(read_bytes(from)?),
        JSON => {
            let text = read_string(from)?;
            from.charge(json_decoded_size::parsed_bytes(text.as_bytes()).min(JSON_MEMORY))?;
            let tree = BoundedJsonTree::parse(&text, JSON_DEPTH, JSON_MEMORY);
            Value::from(tree.map_err(|error| invalid(error.to_string()))?.0)
        }
        other => return Err(invalid(format!("no kind of value is {other}"))),
    })
}

fn write_tensor(to: &mut impl Write, tensor: &Tensor) -> io::Result<()> {
    let element = ElementType::ALL.iter().position(|element| *element == tensor.element()).unwrap_or_default();
    to.write_all(&[element as u8, tensor.rank() as u8])?;
    for size in tensor.shape() {
        write_u64(to, *size as u64)?;
    }
    write_metadata(to, &tensor.metadata)?;
    match tensor.data() {
        TensorData::String(strings) => strings.iter().try_for_each(|text| write_bytes(to, text.as_bytes())),
        _ => to.write_all(tensor.bytes().unwrap_or_default()),
    }
}

fn read_tensor(from: &mut impl BoundedRead) -> io::Result<Tensor> {
    let element = ElementType::ALL.get(usize::from(read_u8(from)?)).ok_or_else(|| invalid("no such element type"))?;
    let rank = usize::from(read_u8(from)?);
    if rank > MAX_AXES {
        return Err(invalid("a tensor of too many axes"));
    }
    let shape = (0..rank).map(|_| read_size(from)).collect::<io::Result<Vec<_>>>()?;
    let metadata = read_metadata(from)?;
    let count = element_count(&shape).ok_or_else(|| invalid("a tensor of too many elements"))?;
    // A string takes the eight bytes of its length at least.
    if count.checked_mul(element.size().unwrap_or(8)).is_none_or(|bytes| bytes > from.left()) {
        return Err(invalid("a tensor that ends too early"));
    }
    let tensor = match element {
        ElementType::Bool => {
            let bytes = read_elements::<u8>(from, count)?;
            if bytes.iter().any(|byte| *byte > 1) {
                return Err(invalid("a bool that is neither 0 nor 1"));
            }
            Tensor::new(shape, bytes.into_iter().map(|byte| byte == 1).collect::<Vec<_>>())
        }
        ElementType::Uint8 => numbers::<u8>(from, shape, count)?,
        ElementType::Int8 => numbers::<i8>(from, shape, count)?,
        ElementType::Uint16 => numbers::<u16>(from, shape, count)?,
        ElementType::Int16 => numbers::<i16>(from, shape, count)?,
        ElementType::Uint32 => numbers::<u32>(from, shape, count)?,
        ElementType::Int32 => numbers::<i32>(from, shape, count)?,
        ElementType::Uint64 => numbers::<u64>(from, shape, count)?,
        ElementType::Int64 => numbers::<i64>(from, shape, count)?,
        ElementType::Float16 => numbers::<f16>(from, shape, count)?,
        ElementType::Bfloat16 => numbers::<bf16>(from, shape, count)?,
        ElementType::Float32 => numbers::<f32>(from, shape, count)?,
        ElementType::Float64 => numbers::<f64>(from, shape, count)?,
        ElementType::String => {
            from.charge(count.saturating_mul(size_of::<String>()))?;
            let mut strings = Vec::with_capacity(count);
            for _ in 0..count {
                strings.push(read_string(from)?);
            }
            Tensor::new(shape, strings)
        }
    };
    Ok(tensor.map_err(|error| invalid(error.to_string()))?.with_metadata(metadata))
}

type TensorResult = Result<Tensor, gpux_core::TensorError>;

fn numbers<T: Pod + TensorElement>(
    from: &mut impl BoundedRead,
    shape: Vec<usize>,
    count: usize,
) -> io::Result<TensorResult> {
    Ok(Tensor::new(shape, read_elements::<T>(from, count)?))
}

fn read_elements<T: Pod>(from: &mut impl BoundedRead, count: usize) -> io::Result<Vec<T>> {
    from.charge(count.saturating_mul(size_of::<T>()))?;
    let mut elements = vec![T::zeroed(); count];
    from.read_exact(bytemuck::cast_slice_mut(&mut elements))?;
    Ok(elements)
}

const COLORS: [Color; 4] = [Color::Gray, Color::Rgb, Color::Rgba, Color::Bgr];

/// A byte for each fact, 0 where it is not known, and the numbers of those that have some.
fn write_metadata(to: &mut impl Write, metadata: &Metadata) -> io::Result<()> {
    let layout = metadata.layout.map_or(0, |layout| if layout == Layout::Hwc { 1 } else { 2 });
    let color = metadata.color.and_then(|color| COLORS.iter().position(|known| *known == color));
    let color = color.map_or(0, |index| index as u8 + 1);
    let Metadata { sample_rate, geometry, transform, .. } = metadata;
    to.write_all(&[
        layout,
        color,
        sample_rate.is_some().into(),
        geometry.is_some().into(),
        transform.is_some().into(),
    ])?;
    if let Some(rate) = *sample_rate {
        write_u32(to, rate)?;
    }
    if let Some(geometry) = geometry {
        write_u32(to, geometry.source_width)?;
        write_u32(to, geometry.source_height)?;
        for number in [geometry.scale_x, geometry.scale_y, geometry.offset_x, geometry.offset_y] {
            write_u32(to, number.to_bits())?;
        }
    }
    for number in transform.iter().flatten() {
        write_u64(to, number.to_bits())?;
    }
    Ok(())
}

fn read_metadata(from: &mut impl Read) -> io::Result<Metadata> {
    let mut known = [0; 5];
    from.read_exact(&mut known)?;
    let [layout, color, has_sample_rate, has_geometry, has_transform] = known;
    let layout = match layout {
        0 => None,
        1 => Some(Layout::Hwc),
        _ => Some(Layout::Chw),
    };
    let color = usize::from(color).checked_sub(1).and_then(|index| COLORS.get(index)).copied();
    let sample_rate = if has_sample_rate == 0 { None } else { Some(read_u32(from)?) };
    let mut float = || read_u32(from).map(f32::from_bits);
    let geometry = if has_geometry == 0 {
        None
    } else {
        Some(Geometry {
            source_width: float()?.to_bits(),
            source_height: float()?.to_bits(),
            scale_x: float()?,
            scale_y: float()?,
            offset_x: float()?,
            offset_y: float()?,
        })
    };
    let transform = if has_transform == 0 { None } else { Some(read_transform(from)?) };
    Ok(Metadata { layout, color, sample_rate, geometry, transform })
}

fn read_transform(from: &mut impl Read) -> io::Result<Transform> {
    let mut transform = Transform::default();
    for number in &mut transform {
        *number = f64::from_bits(read_u64(from)?);
    }
    Ok(transform)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl BoundedRead for &[u8] {
        fn left(&self) -> usize {
            self.len()
        }

        fn charge(&mut self, _: usize) -> io::Result<()> {
            Ok(())
        }
    }

    /// Bytes that may become so much in memory.
    struct Limited<'a>(&'a [u8], usize);

    impl Read for Limited<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl BoundedRead for Limited<'_> {
        fn left(&self) -> usize {
            self.0.len()
        }

        fn charge(&mut self, bytes: usize) -> io::Result<()> {
            self.1 = self.1.checked_sub(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(())
        }
    }

    fn metadata() -> impl Strategy<Value = Metadata> {
        let layout = prop::option::of(prop::sample::select(vec![Layout::Hwc, Layout::Chw]));
        let color = prop::option::of(prop::sample::select(COLORS.to_vec()));
        let geometry = (any::<(u32, u32)>(), any::<[u16; 4]>()).prop_map(|((width, height), numbers)| {
            let [scale_x, scale_y, offset_x, offset_y] = numbers.map(f32::from);
            Geometry { source_width: width, source_height: height, scale_x, scale_y, offset_x, offset_y }
        });
        let transform = any::<Option<[u16; 9]>>().prop_map(|numbers| numbers.map(|numbers| numbers.map(f64::from)));
        (layout, color, any::<Option<u32>>(), prop::option::of(geometry), transform).prop_map(
            |(layout, color, sample_rate, geometry, transform)| Metadata {
                layout,
                color,
                sample_rate,
                geometry,
                transform,
            },
        )
    }

    fn value() -> impl Strategy<Value = Value> {
        let shape = prop::collection::vec(0_usize..4, 0..5);
        let element = prop::sample::select(ElementType::ALL.to_vec());
        let tensor = (shape, element, any::<Vec<u8>>(), metadata()).prop_map(|(shape, element, bytes, metadata)| {
            let count = element_count(&shape).unwrap();
            let tensor = match element.size() {
                None => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    Tensor::new(shape, vec![text; count]).unwrap()
                }
                Some(size) => {
                    let modulus = if element == ElementType::Bool { 2 } else { 120 };
                    let bytes: Vec<_> =
                        bytes.iter().chain([&7]).cycle().map(|byte| byte % modulus).take(count * size).collect();
                    Tensor::from_bytes(element, shape, &bytes).unwrap()
                }
            };
            Value::from(tensor.with_metadata(metadata))
        });
        prop_oneof![
            tensor,
            any::<String>().prop_map(Value::from),
            any::<Vec<u8>>().prop_map(Value::from),
            any::<(String, Vec<i64>)>().prop_map(|(key, numbers)| Value::from(serde_json::json!({ key: numbers }))),
        ]
    }

    proptest! {
        #[test]
        fn values_cross_unchanged_and_broken_ones_are_refused(
            values in prop::collection::vec((any::<String>(), value()), 0..4),
            cut in any::<prop::sample::Index>(),
            (place, byte) in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut bytes = Vec::new();
            write_values(&mut bytes, &values).unwrap();
            let mut all = bytes.as_slice();
            // Bytes are compared, since a NaN differs from itself.
            let mut again = Vec::new();
            write_values(&mut again, &read_values(&mut all, 4).unwrap()).unwrap();
            prop_assert!(all.is_empty() && again == bytes);
            let mut short = &bytes[..cut.index(bytes.len())];
            prop_assert!(read_values(&mut short, 4).is_err());
            // It may be other values, but neither panics nor takes memory.
            let at = place.index(bytes.len());
            bytes[at] = byte;
            let _ = read_values(&mut bytes.as_slice(), 4);
        }
    }

    #[test]
    fn takes_no_memory_for_lengths_that_are_only_claimed() {
        let mut claims = vec![1, 0, 0, 0];
        claims.extend(u64::MAX.to_ne_bytes());
        assert!(read_values(&mut claims.as_slice(), 1).is_err());
        let mut tensor = Vec::new();
        write_values(&mut tensor, &[("x".to_owned(), Tensor::new([1], vec![1_f32]).unwrap().into())]).unwrap();
        let size = tensor.windows(8).position(|bytes| bytes == 1_u64.to_ne_bytes()).unwrap();
        let dims = tensor.windows(8).rposition(|bytes| bytes == 1_u64.to_ne_bytes()).unwrap();
        assert!(size < dims);
        tensor[dims..dims + 8].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        assert!(read_values(&mut tensor.as_slice(), 1).is_err());
    }
    #[test]
    fn charges_what_values_take_in_memory() {
        let needs = |value: Value| {
            let mut bytes = Vec::new();
            write_values(&mut bytes, &[(String::new(), value)]).unwrap();
            let mut all = Limited(&bytes, usize::MAX);
            read_values(&mut all, 1).unwrap();
            let charged = usize::MAX - all.1;
            assert!(read_values(&mut Limited(&bytes, charged), 1).is_ok());
            let short = read_values(&mut Limited(&bytes, charged - 1), 1).unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::OutOfMemory);
            (bytes.len(), charged)
        };
        let (sent, charged) = needs(Tensor::new([1000], vec![0_f32; 1000]).unwrap().into());
        assert!((4000..5000).contains(&sent) && (4000..5000).contains(&charged), "{sent} {charged}");
        let (sent, charged) = needs(Tensor::new([1000], vec![String::new(); 1000]).unwrap().into());
        assert!(sent < 9000 && charged > 24_000, "{sent} {charged}");
        let (sent, charged) = needs(Value::from(serde_json::json!(vec![0; 1000])));
        assert!(sent < 3000 && charged > 32_000, "{sent} {charged}");
    }

    #[test]
    fn rejects_more_values_than_expected() {
        let mut bytes = Vec::new();
        let values = [("a".to_owned(), Value::from("")), ("b".to_owned(), Value::from(""))];
        write_values(&mut bytes, &values).unwrap();
        assert_eq!(read_values(&mut bytes.as_slice(), 2).unwrap().len(), 2);
        let error = read_values(&mut bytes.as_slice(), 1).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::InvalidData, "2 values, where there can be 1")
        );
    }
}
