//! Tensors in files of their own: a `TensorProto`, as the `.pb` files beside ONNX's test models are.

use prost::Message as _;

use super::types::{element, element_name};
use gpux_core::{ElementType, Tensor, TensorError};

/// A file that holds no tensor that gpux carries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorFileError {
    /// it is no protobuf message, or another
    #[error("this is no tensor as ONNX writes it (`TensorProto`): {0}")]
    Invalid(String),
    /// elements that no tensor has here
    #[error("a tensor cannot hold elements of ONNX's type {0}")]
    Elements(String),
    /// the data lies elsewhere
    #[error("the data of the tensor lies in another file, which is not read")]
    External,
    /// the data does not fill the shape, or is no data of its type
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// All of `TensorProto` that holds data.
#[derive(Clone, PartialEq, prost::Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(float, repeated, tag = "4")]
    float_data: Vec<f32>,
    /// what has at most 32 bits, 16-bit floats as their bits
    #[prost(int32, repeated, tag = "5")]
    int32_data: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    string_data: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "7")]
    int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
    #[prost(double, repeated, tag = "10")]
    double_data: Vec<f64>,
    /// uint32, too
    #[prost(uint64, repeated, tag = "11")]
    uint64_data: Vec<u64>,
    #[prost(int32, tag = "14")]
    data_location: i32,
}

/// The tensor of a `.pb` file, with its name, which may be empty.
pub fn from_pb(bytes: &[u8]) -> Result<(String, Tensor), TensorFileError> {
    let proto = TensorProto::decode(bytes).map_err(|error| TensorFileError::Invalid(error.to_string()))?;
    if proto.data_location == 1 {
        return Err(TensorFileError::External);
    }
    let kind = element(proto.data_type).ok_or_else(|| match proto.data_type {
        0 => TensorFileError::Invalid("it states no element type".to_owned()),
        other => TensorFileError::Elements(element_name(other)),
    })?;
    let size = |dim: &i64| usize::try_from(*dim).map_err(|_| TensorFileError::Invalid(format!("a size of {dim}")));
    let shape = proto.dims.iter().map(size).collect::<Result<Vec<_>, _>>()?;
    if kind == ElementType::String {
        let text =
            |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|error| TensorFileError::Invalid(error.to_string()));
        let texts = proto.string_data.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
        return Ok((proto.name, Tensor::new(shape, texts)?));
    }
    let bytes = if proto.raw_data.is_empty() { typed(&proto, kind) } else { proto.raw_data };
    Ok((proto.name, Tensor::from_bytes(kind, shape, &bytes)?))
}

/// The bytes of data that lies in a field of its type.
fn typed(proto: &TensorProto, kind: ElementType) -> Vec<u8> {
    let narrow = |size: usize| {
        proto.int32_data.iter().flat_map(move |number| number.to_le_bytes().into_iter().take(size)).collect()
    };
    match kind {
        ElementType::Float32 => proto.float_data.iter().flat_map(|number| number.to_le_bytes()).collect(),
        ElementType::Float64 => proto.double_data.iter().flat_map(|number| number.to_le_bytes()).collect(),
        ElementType::Int64 => proto.int64_data.iter().flat_map(|number| number.to_le_bytes()).collect(),
        ElementType::Uint64 => proto.uint64_data.iter().flat_map(|number| number.to_le_bytes()).collect(),
        ElementType::Uint32 => proto.uint64_data.iter().flat_map(|number| (*number as u32).to_le_bytes()).collect(),
        other => narrow(other.size().unwrap_or(0)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(proto: TensorProto) -> Result<Tensor, TensorFileError> {
        from_pb(&proto.encode_to_vec()).map(|(_, tensor)| tensor)
    }

    #[test]
    fn reads_every_data_field() {
        let floats = TensorProto { dims: vec![2], data_type: 1, float_data: vec![1.5, -2.0], ..TensorProto::default() };
        assert_eq!(read(floats).unwrap(), Tensor::new([2], vec![1.5_f32, -2.0]).unwrap());
        let raw = TensorProto {
            dims: vec![2, 1],
            data_type: 7,
            raw_data: [[1_u8; 8], [0; 8]].concat(),
            ..TensorProto::default()
        };
        assert_eq!(read(raw).unwrap(), Tensor::new([2, 1], vec![0x0101_0101_0101_0101_i64, 0]).unwrap());
        let bytes = TensorProto { dims: vec![3], data_type: 2, int32_data: vec![0, 7, 255], ..TensorProto::default() };
        assert_eq!(read(bytes).unwrap(), Tensor::new([3], vec![0_u8, 7, 255]).unwrap());
        let halves = TensorProto { data_type: 10, int32_data: vec![0x3c00], ..TensorProto::default() };
        assert_eq!(read(halves).unwrap().cast(ElementType::Float32).unwrap(), Tensor::scalar(1.0_f32));
        let wide = TensorProto {
            dims: vec![1],
            data_type: 12,
            uint64_data: vec![u64::from(u32::MAX)],
            ..TensorProto::default()
        };
        assert_eq!(read(wide).unwrap(), Tensor::new([1], vec![u32::MAX]).unwrap());
        let texts = TensorProto {
            dims: vec![1],
            data_type: 8,
            string_data: vec![b"a".to_vec()],
            name: "x".into(),
            ..TensorProto::default()
        };
        let (name, tensor) = from_pb(&texts.encode_to_vec()).unwrap();
        assert_eq!((name.as_str(), tensor), ("x", Tensor::new([1], vec!["a".to_owned()]).unwrap()));
    }

    #[test]
    fn rejects_invalid_tensor_files() {
        assert!(matches!(from_pb(b"\xff\xff"), Err(TensorFileError::Invalid(_))));
        assert!(matches!(from_pb(b""), Err(TensorFileError::Invalid(_))));
        let short = TensorProto { dims: vec![1 << 40], data_type: 1, float_data: vec![1.0], ..TensorProto::default() };
        assert!(matches!(read(short), Err(TensorFileError::Tensor(_))));
        let negative = TensorProto { dims: vec![-1], data_type: 1, ..TensorProto::default() };
        assert!(matches!(read(negative), Err(TensorFileError::Invalid(_))));
        let complex = TensorProto { data_type: 14, ..TensorProto::default() };
        assert_eq!(read(complex), Err(TensorFileError::Elements("complex64".to_owned())));
        let check_external_data = TensorProto { data_type: 1, data_location: 1, ..TensorProto::default() };
        assert_eq!(read(check_external_data), Err(TensorFileError::External));
    }
}
