//! gpux, through the contract.

use std::cell::Cell;
use std::thread::LocalKey;

use self::bindings::exports::gpux::pipeline::step as contract;
use self::bindings::gpux::pipeline::{builtins, log as lines, models, types};
use crate::log::Level;
use crate::{
    Arguments, Color, Dim, ElementType, Error, Geometry, Kind, Layout, Lent, Port, Signature, Step, TensorKind,
    Transform, Value, Values,
};

/// What wit-bindgen makes of `wit/pipeline.wit`.
#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::pedantic,
    reason = "generated: calls across the boundary hand over addresses"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "pipeline-step",
        pub_export_macro: true,
        export_macro_name: "export_step",
        default_bindings_module: "gpux_step::__private::bindings",
    });
}

/// Enums of the contract and the same of this crate.
macro_rules! same {
    ($($name:ident { $($case:ident)+ })+) => {$(
        impl From<$name> for types::$name {
            fn from(own: $name) -> Self {
                match own { $($name::$case => Self::$case,)+ }
            }
        }

        impl From<types::$name> for $name {
            fn from(given: types::$name) -> Self {
                match given { $(types::$name::$case => Self::$case,)+ }
            }
        }
    )+};
}

same! {
    ElementType { Boolean Uint8 Int8 Uint16 Int16 Uint32 Int32 Uint64 Int64 Float16 Bfloat16 Float32 Float64 Text }
    Layout { Hwc Chw }
    Color { Gray Rgb Rgba Bgr }
}

pub(crate) struct Tensor(types::Tensor);

impl Tensor {
    pub(crate) fn create(element: ElementType, shape: &[u32], bytes: &[u8]) -> Result<Self, String> {
        types::Tensor::create(element.into(), shape, bytes).map(Self)
    }

    pub(crate) fn create_text(shape: &[u32], texts: &[String]) -> Result<Self, String> {
        types::Tensor::create_text(shape, texts).map(Self)
    }

    pub(crate) fn zeros(element: ElementType, shape: &[u32]) -> Result<Self, String> {
        types::Tensor::zeros(element.into(), shape).map(Self)
    }

    pub(crate) fn element(&self) -> ElementType {
        self.0.element().into()
    }

    pub(crate) fn shape(&self) -> Vec<u32> {
        self.0.shape()
    }

    pub(crate) fn data(&self) -> Vec<u8> {
        self.0.data()
    }

    pub(crate) fn read(&self, offset: u32, len: u32) -> Result<Vec<u8>, String> {
        self.0.read(offset, len)
    }

    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), String> {
        self.0.write(offset, bytes)
    }

    pub(crate) fn texts(&self) -> Result<Vec<String>, String> {
        self.0.texts()
    }

    pub(crate) fn layout(&self) -> Option<Layout> {
        self.0.layout().map(Into::into)
    }

    pub(crate) fn set_layout(&mut self, layout: Option<Layout>) {
        self.0.set_layout(layout.map(Into::into));
    }

    pub(crate) fn color(&self) -> Option<Color> {
        self.0.color().map(Into::into)
    }

    pub(crate) fn set_color(&mut self, color: Option<Color>) {
        self.0.set_color(color.map(Into::into));
    }

    pub(crate) fn sample_rate(&self) -> Option<u32> {
        self.0.sample_rate()
    }

    pub(crate) fn set_sample_rate(&mut self, hertz: Option<u32>) {
        self.0.set_sample_rate(hertz);
    }

    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.0.geometry().map(|given| {
            let types::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = given;
            Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
        })
    }

    pub(crate) fn set_geometry(&mut self, geometry: Option<Geometry>) {
        self.0.set_geometry(geometry.map(|own| {
            let Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = own;
            types::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
        }));
    }

    pub(crate) fn transform(&self) -> Option<Transform> {
        self.0.transform().map(Into::into)
    }

    pub(crate) fn set_transform(&mut self, transform: Option<Transform>) {
        self.0.set_transform(transform.map(Into::into));
    }

    pub(crate) fn copy_metadata(&mut self, source: &Self) {
        self.0.copy_metadata(&source.0);
    }
}

pub(crate) fn log(level: Level, line: &str) {
    let level = match level {
        Level::Debug => lines::Level::Debug,
        Level::Info => lines::Level::Info,
        Level::Warn => lines::Level::Warn,
        Level::Error => lines::Level::Error,
    };
    lines::log(level, line);
}

pub(crate) fn run_builtin(name: &str, options: &str, inputs: Arguments<'_>) -> Result<Values, Error> {
    builtins::run(name, options, &lend(inputs)).map(values).map_err(failure)
}

pub(crate) fn prepare_builtin(name: &str, options: &str) -> Result<u32, Error> {
    builtins::prepare(name, options).map_err(failure)
}

pub(crate) fn run_prepared(step: u32, inputs: Arguments<'_>) -> Result<Values, Error> {
    builtins::run_prepared(step, &lend(inputs)).map(values).map_err(failure)
}

pub(crate) fn require_model(name: &str) -> Result<(), Error> {
    models::require(name).map_err(failure)
}

pub(crate) fn run_model(name: &str, inputs: Arguments<'_>) -> Result<Values, Error> {
    models::run(name, &lend(inputs)).map(values).map_err(failure)
}

fn lend(inputs: Arguments<'_>) -> Vec<types::NamedLentValue<'_>> {
    let lend = |(name, value): (&str, _)| {
        let value = match value {
            Lent::Tensor(tensor) => types::LentValue::Tensor(&tensor.0.0),
            Lent::Text(text) => types::LentValue::Text(text.to_owned()),
            Lent::Bytes(bytes) => types::LentValue::Bytes(bytes.to_vec()),
            Lent::Json(text) => types::LentValue::Json(text.to_owned()),
        };
        types::NamedLentValue { name: name.to_owned(), value }
    };
    inputs.0.into_iter().map(lend).collect()
}

fn values(given: Vec<types::NamedValue>) -> Values {
    let value = |types::NamedValue { name, value }| {
        let value = match value {
            types::Value::Tensor(tensor) => Value::Tensor(crate::Tensor(Tensor(tensor))),
            types::Value::Text(text) => Value::Text(text),
            types::Value::Bytes(bytes) => Value::Bytes(bytes),
            types::Value::Json(text) => Value::Json(text),
        };
        (name, value)
    };
    Values(given.into_iter().map(value).collect())
}

fn given(values: Values) -> Vec<types::NamedValue> {
    let value = |(name, value)| {
        let value = match value {
            Value::Tensor(tensor) => types::Value::Tensor(tensor.0.0),
            Value::Text(text) => types::Value::Text(text),
            Value::Bytes(bytes) => types::Value::Bytes(bytes),
            Value::Json(text) => types::Value::Json(text),
        };
        types::NamedValue { name, value }
    };
    values.0.into_iter().map(value).collect()
}

fn failure(given: types::Error) -> Error {
    match given {
        types::Error::InvalidInput(why) => Error::InvalidInput(why),
        types::Error::Failed(why) => Error::Failed(why),
    }
}

impl From<Error> for types::Error {
    fn from(own: Error) -> Self {
        match own {
            Error::InvalidInput(why) => Self::InvalidInput(why),
            Error::Failed(why) => Self::Failed(why),
        }
    }
}

/// The configured step of a component, which lives as long as the instance. A component has one
/// thread, so this is a static of it.
type Configured<S> = LocalKey<Cell<Option<&'static S>>>;

/// `describe` of the contract.
pub fn describe<S: Step>() -> contract::Description {
    log_panics();
    contract::Description { summary: S::SUMMARY.to_owned(), options_schema: crate::options::schema_of::<S>() }
}

/// `configure` of the contract.
pub fn configure<S: Step>(
    configured: &'static Configured<S>,
    options: &str,
) -> Result<contract::Signature, types::Error> {
    log_panics();
    let (step, signature) = S::configure(crate::options::read(options)?)?;
    configured.set(Some(Box::leak(Box::new(step))));
    let Signature { inputs, outputs } = signature;
    let ports = |ports: Vec<Port>| ports.into_iter().map(port).collect();
    Ok(contract::Signature { inputs: ports(inputs), outputs: ports(outputs) })
}

/// `process` of the contract.
pub fn process<S: Step>(
    configured: &'static Configured<S>,
    inputs: Vec<types::NamedValue>,
) -> Result<Vec<types::NamedValue>, types::Error> {
    match configured.get() {
        Some(step) => Ok(given(step.process(values(inputs))?)),
        None => Err(types::Error::Failed("`process` was called before `configure`".to_owned())),
    }
}

/// A panic stops the component; why it did is then in the log.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}

fn port(own: Port) -> contract::Port {
    let Port { name, kind, optional, description } = own;
    let kind = match kind {
        Kind::Any => contract::Kind::Any,
        Kind::Tensor(tensor) => contract::Kind::Tensor(tensor_kind(tensor)),
        Kind::Text => contract::Kind::Text,
        Kind::Bytes => contract::Kind::Bytes,
        Kind::Json => contract::Kind::Json,
    };
    contract::Port { name, kind, optional, description }
}

fn tensor_kind(own: TensorKind) -> contract::TensorKind {
    let dim = |dim| match dim {
        Dim::Fixed(size) => contract::Dimension::Fixed(size),
        Dim::Any => contract::Dimension::Dynamic,
        Dim::Named(name) => contract::Dimension::Named(name),
    };
    contract::TensorKind {
        elements: own.elements.into_iter().map(Into::into).collect(),
        shape: own.shape.map(|dims| dims.into_iter().map(dim).collect()),
        layout: own.layout.map(Into::into),
    }
}
