//! A process that stands in for gpux: tensors in memory, log lines kept, built-in steps and models
//! answered by what a test registered. The errors are those that gpux gives.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::log::Level;
use crate::{Arguments, Color, ElementType, Error, Geometry, Layout, Lent, Transform, Value, Values};

/// What answers a call of a built-in step: its options as text, and the inputs.
type Answer = Box<dyn FnMut(&str, Values) -> Result<Values, Error>>;

/// What a test set up and what its step left; each test has a thread of its own.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) log: Vec<(Level, String)>,
    pub(crate) builtins: HashMap<String, Answer>,
    pub(crate) models: HashMap<String, Answer>,
    /// the name and the options of each prepared step
    pub(crate) prepared: Vec<(String, String)>,
}

thread_local! {
    pub(crate) static PROCESS: RefCell<Process> = RefCell::default();
}

#[derive(Clone)]
pub(crate) struct Tensor {
    element: ElementType,
    shape: Vec<u32>,
    bytes: Vec<u8>,
    texts: Vec<String>,
    metadata: Metadata,
}

#[derive(Clone, Copy, Default)]
struct Metadata {
    layout: Option<Layout>,
    color: Option<Color>,
    sample_rate: Option<u32>,
    geometry: Option<Geometry>,
    transform: Option<Transform>,
}

impl Tensor {
    pub(crate) fn create(element: ElementType, shape: &[u32], bytes: &[u8]) -> Result<Self, String> {
        let Some(size) = element.size() else {
            return Err("texts are not made from bytes; use `Tensor::of_texts`".to_owned());
        };
        let needed = count(shape)?.checked_mul(size).ok_or_else(too_large)?;
        if bytes.len() != needed {
            return Err(format!("{element}{shape:?} takes {needed} bytes, not {}", bytes.len()));
        }
        check_booleans(element, bytes)?;
        Ok(Self {
            element,
            shape: shape.to_vec(),
            bytes: bytes.to_vec(),
            texts: Vec::new(),
            metadata: Metadata::default(),
        })
    }

    pub(crate) fn create_text(shape: &[u32], texts: &[String]) -> Result<Self, String> {
        let needed = count(shape)?;
        if texts.len() != needed {
            return Err(format!("{shape:?} takes {needed} texts, not {}", texts.len()));
        }
        let (element, shape, texts) = (ElementType::Text, shape.to_vec(), texts.to_vec());
        Ok(Self { element, shape, bytes: Vec::new(), texts, metadata: Metadata::default() })
    }

    pub(crate) fn zeros(element: ElementType, shape: &[u32]) -> Result<Self, String> {
        match element.size() {
            Some(size) => {
                Self::create(element, shape, &vec![0; count(shape)?.checked_mul(size).ok_or_else(too_large)?])
            }
            None => Self::create_text(shape, &vec![String::new(); count(shape)?]),
        }
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn shape(&self) -> Vec<u32> {
        self.shape.clone()
    }

    pub(crate) fn data(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    pub(crate) fn read(&self, offset: u32, len: u32) -> Result<Vec<u8>, String> {
        let range = self.range(offset, len as usize)?;
        Ok(self.bytes[range].to_vec())
    }

    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), String> {
        let range = self.range(offset, bytes.len())?;
        check_booleans(self.element, bytes)?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn texts(&self) -> Result<Vec<String>, String> {
        match self.element {
            ElementType::Text => Ok(self.texts.clone()),
            other => Err(format!("a tensor of {other} holds no texts")),
        }
    }

    pub(crate) fn layout(&self) -> Option<Layout> {
        self.metadata.layout
    }

    pub(crate) fn set_layout(&mut self, layout: Option<Layout>) {
        self.metadata.layout = layout;
    }

    pub(crate) fn color(&self) -> Option<Color> {
        self.metadata.color
    }

    pub(crate) fn set_color(&mut self, color: Option<Color>) {
        self.metadata.color = color;
    }

    pub(crate) fn sample_rate(&self) -> Option<u32> {
        self.metadata.sample_rate
    }

    pub(crate) fn set_sample_rate(&mut self, hertz: Option<u32>) {
        self.metadata.sample_rate = hertz;
    }

    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.metadata.geometry
    }

    pub(crate) fn set_geometry(&mut self, geometry: Option<Geometry>) {
        self.metadata.geometry = geometry;
    }

    pub(crate) fn transform(&self) -> Option<Transform> {
        self.metadata.transform
    }

    pub(crate) fn set_transform(&mut self, transform: Option<Transform>) {
        self.metadata.transform = transform;
    }

    pub(crate) fn copy_metadata(&mut self, source: &Self) {
        self.metadata = source.metadata;
    }

    fn range(&self, offset: u32, len: usize) -> Result<std::ops::Range<usize>, String> {
        let (start, end) = (offset as usize, (offset as usize).saturating_add(len));
        let size = self.bytes.len();
        if end <= size { Ok(start..end) } else { Err(format!("bytes {start} to {end} leave a tensor of {size} bytes")) }
    }
}

fn count(shape: &[u32]) -> Result<usize, String> {
    let mut sizes = shape.iter().map(|size| *size as usize);
    sizes.try_fold(1_usize, usize::checked_mul).ok_or_else(too_large)
}

fn too_large() -> String {
    "the tensor is too large".to_owned()
}

fn check_booleans(element: ElementType, bytes: &[u8]) -> Result<(), String> {
    let broken = element == ElementType::Boolean && bytes.iter().any(|byte| *byte > 1);
    if broken { Err("a boolean is neither 0 nor 1".to_owned()) } else { Ok(()) }
}

pub(crate) fn log(level: Level, line: &str) {
    PROCESS.with_borrow_mut(|process| process.log.push((level, line.to_owned())));
}

pub(crate) fn run_builtin(name: &str, options: &str, inputs: Arguments<'_>) -> Result<Values, Error> {
    answer(|process| &mut process.builtins, name, missing_builtin(name), options, inputs)
}

pub(crate) fn prepare_builtin(name: &str, options: &str) -> Result<u32, Error> {
    PROCESS.with_borrow_mut(|process| {
        if !process.builtins.contains_key(name) {
            return Err(Error::InvalidInput(missing_builtin(name)));
        }
        process.prepared.push((name.to_owned(), options.to_owned()));
        Ok(process.prepared.len() as u32 - 1)
    })
}

pub(crate) fn run_prepared(step: u32, inputs: Arguments<'_>) -> Result<Values, Error> {
    let prepared = PROCESS.with_borrow(|process| process.prepared.get(step as usize).cloned());
    let Some((name, options)) = prepared else {
        return Err(Error::InvalidInput(format!("there is no prepared step {step}")));
    };
    run_builtin(&name, &options, inputs)
}

pub(crate) fn require_model(name: &str) -> Result<(), Error> {
    let is_there = PROCESS.with_borrow(|process| process.models.contains_key(name));
    if is_there { Ok(()) } else { Err(Error::InvalidInput(missing_model(name))) }
}

pub(crate) fn run_model(name: &str, inputs: Arguments<'_>) -> Result<Values, Error> {
    answer(|process| &mut process.models, name, missing_model(name), "", inputs)
}

fn missing_builtin(name: &str) -> String {
    format!("there is no built-in step `{name}` here; the test gives one with `testing::builtin`")
}

fn missing_model(name: &str) -> String {
    format!("the model `{name}` is not granted here; the test gives one with `testing::model`")
}

/// Calls what a test registered. It is taken out meanwhile, so that it may call others itself.
fn answer(
    of: fn(&mut Process) -> &mut HashMap<String, Answer>,
    name: &str,
    missing: String,
    options: &str,
    inputs: Arguments<'_>,
) -> Result<Values, Error> {
    let answer = PROCESS.with_borrow_mut(|process| of(process).remove(name));
    let Some(mut answer) = answer else { return Err(Error::InvalidInput(missing)) };
    let own = |(name, lent): (&str, _)| {
        let value = match lent {
            Lent::Tensor(tensor) => Value::Tensor(crate::Tensor(tensor.0.clone())),
            Lent::Text(text) => Value::Text(text.to_owned()),
            Lent::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Lent::Json(text) => Value::Json(text.to_owned()),
        };
        (name.to_owned(), value)
    };
    let result = answer(options, Values(inputs.0.into_iter().map(own).collect()));
    PROCESS.with_borrow_mut(|process| {
        of(process).entry(name.to_owned()).or_insert(answer);
    });
    result
}
