//! The host's side of the interfaces `types` and `log`.

use wasmtime::component::Resource;

use super::bindings::{log, types};
use super::failure::StopReason;
use super::guest_output::RANK;
use super::state::State;
use super::tensor_table::cost;
use gpux_core::{ElementType, StepFailure, Tensor, TensorError, element_count};

type Answer<T> = wasmtime::Result<Result<T, String>>;

impl State {
    fn insert_result(&mut self, made: Result<Tensor, TensorError>) -> Answer<Resource<Tensor>> {
        Ok(match made {
            Ok(tensor) => Ok(self.insert_tensor(tensor)?),
            Err(error) => Err(error.to_string()),
        })
    }
}

fn dims(shape: &[u32]) -> Result<Vec<usize>, String> {
    if shape.len() > RANK {
        return Err(format!("a tensor of {} axes; at most {RANK} are allowed", shape.len()));
    }
    Ok(shape.iter().map(|size| *size as usize).collect())
}

impl types::Host for State {}

impl types::HostTensor for State {
    fn create(&mut self, element: types::ElementType, shape: Vec<u32>, data: Vec<u8>) -> Answer<Resource<Tensor>> {
        self.meter.check_fits(data.len())?;
        let shape = match dims(&shape) {
            Ok(shape) => shape,
            Err(why) => return Ok(Err(why)),
        };
        match element {
            types::ElementType::Text => Ok(Err("a tensor of text has no bytes; use `create-text`".to_owned())),
            // The bytes become the tensor: no second copy.
            types::ElementType::Uint8 => self.insert_result(Tensor::new(shape, data)),
            other => self.insert_result(Tensor::from_bytes(other.into(), shape, &data)),
        }
    }

    fn create_text(&mut self, shape: Vec<u32>, data: Vec<String>) -> Answer<Resource<Tensor>> {
        match dims(&shape) {
            Ok(shape) => self.insert_result(Tensor::new(shape, data)),
            Err(why) => Ok(Err(why)),
        }
    }

    fn zeros(&mut self, element: types::ElementType, shape: Vec<u32>) -> Answer<Resource<Tensor>> {
        let shape = match dims(&shape) {
            Ok(shape) => shape,
            Err(why) => return Ok(Err(why)),
        };
        let element = ElementType::from(element);
        let size =
            element_count(&shape).and_then(|count| count.checked_mul(element.size().unwrap_or(size_of::<String>())));
        if let Some(size) = size {
            self.meter.check_fits(size)?;
        }
        self.insert_result(Tensor::zeros(element, shape))
    }

    fn element(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<types::ElementType> {
        Ok(self.tensor(&tensor)?.element().into())
    }

    fn shape(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Vec<u32>> {
        Ok(self.tensor(&tensor)?.shape().iter().map(|size| *size as u32).collect())
    }

    fn byte_length(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<u32> {
        Ok(u32::try_from(self.tensor(&tensor)?.byte_len()).unwrap_or(u32::MAX))
    }

    fn data(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Vec<u8>> {
        let texts = || {
            StopReason(StepFailure::Failed("it asked for the bytes of a tensor of text; `texts` has them".to_owned()))
        };
        let bytes = self.tensor(&tensor)?.bytes().ok_or_else(texts)?;
        self.check_copy_size(bytes.len())?;
        Ok(bytes.to_vec())
    }

    fn read(&mut self, tensor: Resource<Tensor>, offset: u32, len: u32) -> Answer<Vec<u8>> {
        let Some(bytes) = self.tensor(&tensor)?.bytes() else {
            return Ok(Err(TensorError::Strings.to_string()));
        };
        let (offset, end) = (offset as usize, (offset as usize).saturating_add(len as usize));
        let range = bytes.get(offset..end);
        self.check_copy_size(range.map_or(0, <[u8]>::len))?;
        Ok(range.map(<[u8]>::to_vec).ok_or_else(|| TensorError::Range { offset, end, len: bytes.len() }.to_string()))
    }

    fn write(&mut self, tensor: Resource<Tensor>, offset: u32, data: Vec<u8>) -> Answer<()> {
        let written = self.tensor_mut(&tensor)?.write_bytes(offset as usize, &data);
        Ok(written.map_err(|error| error.to_string()))
    }

    fn texts(&mut self, tensor: Resource<Tensor>) -> Answer<Vec<String>> {
        let tensor = self.tensor(&tensor)?;
        self.check_copy_size(cost(tensor))?;
        let texts = tensor.as_slice::<String>().map(<[String]>::to_vec);
        Ok(texts.ok_or_else(|| format!("a tensor of {} holds no texts", tensor.element())))
    }

    fn layout(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Option<types::Layout>> {
        Ok(self.tensor(&tensor)?.metadata.layout.map(Into::into))
    }

    fn set_layout(&mut self, tensor: Resource<Tensor>, layout: Option<types::Layout>) -> wasmtime::Result<()> {
        self.metadata_mut(&tensor)?.metadata.layout = layout.map(Into::into);
        Ok(())
    }

    fn color(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Option<types::Color>> {
        Ok(self.tensor(&tensor)?.metadata.color.map(Into::into))
    }

    fn set_color(&mut self, tensor: Resource<Tensor>, color: Option<types::Color>) -> wasmtime::Result<()> {
        self.metadata_mut(&tensor)?.metadata.color = color.map(Into::into);
        Ok(())
    }

    fn sample_rate(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Option<u32>> {
        Ok(self.tensor(&tensor)?.metadata.sample_rate)
    }

    fn set_sample_rate(&mut self, tensor: Resource<Tensor>, hertz: Option<u32>) -> wasmtime::Result<()> {
        self.metadata_mut(&tensor)?.metadata.sample_rate = hertz;
        Ok(())
    }

    fn geometry(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Option<types::Geometry>> {
        Ok(self.tensor(&tensor)?.metadata.geometry.map(Into::into))
    }

    fn set_geometry(&mut self, tensor: Resource<Tensor>, geometry: Option<types::Geometry>) -> wasmtime::Result<()> {
        self.metadata_mut(&tensor)?.metadata.geometry = geometry.map(Into::into);
        Ok(())
    }

    fn transform(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<Option<types::Transform>> {
        Ok(self.tensor(&tensor)?.metadata.transform.map(Into::into))
    }

    fn set_transform(&mut self, tensor: Resource<Tensor>, transform: Option<types::Transform>) -> wasmtime::Result<()> {
        self.metadata_mut(&tensor)?.metadata.transform = transform.map(Into::into);
        Ok(())
    }

    fn copy_metadata(&mut self, tensor: Resource<Tensor>, source: Resource<Tensor>) -> wasmtime::Result<()> {
        let metadata = self.tensor(&source)?.metadata;
        self.metadata_mut(&tensor)?.metadata = metadata;
        Ok(())
    }

    fn drop(&mut self, tensor: Resource<Tensor>) -> wasmtime::Result<()> {
        self.take(&tensor)?;
        Ok(())
    }
}

impl log::Host for State {
    fn log(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => "debug",
            log::Level::Info => "info",
            log::Level::Warn => "warn",
            log::Level::Error => "error",
        };
        self.log.push(level, &message);
        Ok(())
    }
}
