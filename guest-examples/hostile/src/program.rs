//! A step that does what its input says: bytes read as calls into the host, with any arguments.
//! It is how the host's side of the contract is fuzzed.

use super::gpux::pipeline::types::{
    Color, ElementType, Error, Geometry, Layout, LentValue, NamedLentValue, NamedValue, Tensor, Value,
};
use super::gpux::pipeline::{builtins, log};

const ELEMENTS: [ElementType; 14] = [
    ElementType::Boolean,
    ElementType::Uint8,
    ElementType::Int8,
    ElementType::Uint16,
    ElementType::Int16,
    ElementType::Uint32,
    ElementType::Int32,
    ElementType::Uint64,
    ElementType::Int64,
    ElementType::Float16,
    ElementType::Bfloat16,
    ElementType::Float32,
    ElementType::Float64,
    ElementType::Text,
];

/// What is left of the program.
struct Program<'a>(&'a [u8]);

impl Program<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Two bytes of length, then as many.
    fn text(&mut self) -> Option<Vec<u8>> {
        let len = self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)?;
        self.bytes(len.into()).map(<[u8]>::to_vec)
    }

    /// Text that is UTF-8 only if the program says so.
    fn string(&mut self) -> Option<String> {
        // SAFETY: none; text that is not UTF-8 only travels to the host, which must refuse it.
        self.text().map(|text| unsafe { String::from_utf8_unchecked(text) })
    }

    fn shape(&mut self) -> Option<Vec<u32>> {
        let axes = self.byte()?;
        (0..axes % 6).map(|_| self.number()).collect()
    }

    fn element(&mut self) -> Option<ElementType> {
        self.byte().map(|byte| ELEMENTS[usize::from(byte) % ELEMENTS.len()])
    }
}

/// The tensors and values made so far.
#[derive(Default)]
struct Made {
    tensors: Vec<Tensor>,
    results: Vec<NamedValue>,
}

/// Gives the values that the program made; outputs it did not name are missing.
pub(super) fn run(inputs: Vec<NamedValue>) -> Result<Option<Value>, Error> {
    let mut made = Made::default();
    let mut code = Vec::new();
    for input in inputs {
        match input.value {
            Value::Bytes(bytes) => code = bytes,
            Value::Tensor(tensor) => made.tensors.push(tensor),
            Value::Text(_) | Value::Json(_) => {}
        }
    }
    let mut program = Program(&code);
    while step(&mut program, &mut made).is_some() {}
    Ok(made.results.pop().map(|result| result.value))
}

/// One call into the host; `None` at the program's end.
fn step(program: &mut Program<'_>, made: &mut Made) -> Option<()> {
    let call = program.byte()?;
    let place = usize::from(program.byte()?);
    let tensors = made.tensors.len().max(1);
    let tensor = made.tensors.get(place % tensors);
    match call % 20 {
        0 => made.tensors.extend(Tensor::create(program.element()?, &program.shape()?, &program.text()?)),
        1 => made.tensors.extend(Tensor::zeros(program.element()?, &program.shape()?)),
        2 => {
            let texts: Option<Vec<_>> = (0..place % 5).map(|_| program.string()).collect();
            made.tensors.extend(Tensor::create_text(&program.shape()?, &texts?));
        }
        3 => {
            let (offset, len) = (program.number()?, program.number()?);
            drop(tensor?.read(offset, len));
        }
        4 => drop(tensor?.write(program.number()?, &program.text()?)),
        5 => drop(tensor.filter(|tensor| tensor.element() != ElementType::Text)?.data()),
        6 => drop(tensor?.texts()),
        7 => {
            let tensor = tensor?;
            std::hint::black_box((tensor.shape(), tensor.byte_length(), tensor.geometry(), tensor.color()));
        }
        8 => {
            let tensor = tensor?;
            tensor.set_layout([None, Some(Layout::Hwc), Some(Layout::Chw)][place % 3]);
            tensor.set_color([None, Some(Color::Gray), Some(Color::Rgba), Some(Color::Bgr)][place % 4]);
            tensor.set_sample_rate(Some(program.number()?));
        }
        9 => {
            let mut float = || program.number().map(f32::from_bits);
            let (scale_x, scale_y, offset_x, offset_y) = (float()?, float()?, float()?, float()?);
            let (source_width, source_height) = (program.number()?, program.number()?);
            let geometry = Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y };
            tensor?.set_geometry(Some(geometry));
        }
        10 => made.tensors.last()?.copy_metadata(tensor?),
        11 if !made.tensors.is_empty() => drop(made.tensors.swap_remove(place % tensors)),
        12 => log::log(log::Level::Debug, &program.string()?),
        13 => made.results.push(NamedValue { name: String::new(), value: Value::Bytes(program.text()?) }),
        14 => made.results.push(NamedValue { name: String::new(), value: Value::Json(program.string()?) }),
        15 => made.results.push(NamedValue { name: String::new(), value: Value::Text(program.string()?) }),
        16 if !made.tensors.is_empty() => {
            let tensor = made.tensors.swap_remove(place % tensors);
            made.results.push(NamedValue { name: String::new(), value: Value::Tensor(tensor) });
        }
        17 => {
            let (name, options) = (program.string()?, program.string()?);
            let lent: Option<Vec<_>> = (0..program.byte()? % 4).map(|_| lent(program, &made.tensors)).collect();
            let given = builtins::run(&name, &options, &lent?);
            for value in given.into_iter().flatten() {
                match value.value {
                    Value::Tensor(tensor) => made.tensors.push(tensor),
                    value => made.results.push(NamedValue { name: String::new(), value }),
                }
            }
        }
        18 => {
            let mut float = || Some(f64::from_bits(u64::from(program.number()?) << 32 | u64::from(program.number()?)));
            let (a, b, c) = (float()?, float()?, float()?);
            let (d, e, f) = (float()?, float()?, float()?);
            let (g, h, i) = (float()?, float()?, float()?);
            tensor?.set_transform(Some((a, b, c, d, e, f, g, h, i)));
            std::hint::black_box(tensor?.transform());
        }
        19 => {
            let (number, name, options) = (program.number()?, program.string()?, program.string()?);
            drop(builtins::prepare(&name, &options));
            drop(builtins::run_prepared(number, &[]));
        }
        _ => {}
    }
    Some(())
}

fn lent<'a>(program: &mut Program<'_>, tensors: &'a [Tensor]) -> Option<NamedLentValue<'a>> {
    let kind = program.byte()?;
    let name = if kind & 8 == 0 { String::new() } else { program.string()? };
    let value = match kind % 4 {
        0 => LentValue::Tensor(tensors.get(usize::from(program.byte()?) % tensors.len().max(1))?),
        1 => LentValue::Text(program.string()?),
        2 => LentValue::Bytes(program.text()?),
        _ => LentValue::Json(program.string()?),
    };
    Some(NamedLentValue { name, value })
}
