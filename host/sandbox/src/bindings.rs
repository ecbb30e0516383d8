//! The Rust side of `wit/pipeline.wit`, and the plain one-to-one conversions.

use wasmtime::component::{ComponentType, Lower, Resource};

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "pipeline-step",
    imports: { default: trappable },
    with: { "gpux:pipeline/types.tensor": gpux_core::Tensor },
});

pub(super) use self::exports::gpux::pipeline::step;
pub(super) use self::gpux::pipeline::{builtins, log, models, types};

/// The interface that a step exports, without its version.
pub(super) const STEP_INTERFACE: &str = "gpux:pipeline/step";

/// The interface that a step exports, in the version of this gpux; a component may have any other 0.1.x.
pub(super) const STEP: &str = "gpux:pipeline/step@0.1.1";

/// An input of a call: `named-value`, borrowing data that the generated type would copy.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct NamedInput<'a> {
    pub(super) name: &'a str,
    pub(super) value: InputValue<'a>,
}

/// The variant `value`, borrowing.
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(super) enum InputValue<'a> {
    #[component(name = "tensor")]
    Tensor(Resource<gpux_core::Tensor>),
    #[component(name = "text")]
    Text(&'a str),
    #[component(name = "bytes")]
    Bytes(&'a [u8]),
    #[component(name = "json")]
    Json(String),
}

macro_rules! same {
    ($here:ty, $there:ty: $($one:ident = $other:ident),+ $(,)?) => {
        impl From<$here> for $there {
            fn from(value: $here) -> Self {
                match value { $(<$here>::$one => Self::$other,)+ }
            }
        }
        impl From<$there> for $here {
            fn from(value: $there) -> Self {
                match value { $(<$there>::$other => Self::$one,)+ }
            }
        }
    };
}

same!(gpux_core::ElementType, types::ElementType:
    Bool = Boolean, Uint8 = Uint8, Int8 = Int8, Uint16 = Uint16, Int16 = Int16, Uint32 = Uint32, Int32 = Int32,
    Uint64 = Uint64, Int64 = Int64, Float16 = Float16, Bfloat16 = Bfloat16, Float32 = Float32, Float64 = Float64,
    String = Text);
same!(gpux_core::Layout, types::Layout: Hwc = Hwc, Chw = Chw);
same!(gpux_core::Color, types::Color: Gray = Gray, Rgb = Rgb, Rgba = Rgba, Bgr = Bgr);

impl From<types::Geometry> for gpux_core::Geometry {
    fn from(geometry: types::Geometry) -> Self {
        let types::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = geometry;
        Self { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
    }
}

impl From<gpux_core::Geometry> for types::Geometry {
    fn from(geometry: gpux_core::Geometry) -> Self {
        let gpux_core::Geometry { source_width, source_height, scale_x, scale_y, offset_x, offset_y } = geometry;
        Self { source_width, source_height, scale_x, scale_y, offset_x, offset_y }
    }
}
