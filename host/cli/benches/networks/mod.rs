//! What models of the benches take, and a bare session's run on it.

use gpux_core::Tensor;
use ort::session::{Session, SessionInputValue};
use ort::value::TensorRef;

/// Pictures as floats, texts as whole numbers.
pub(crate) fn input(shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    if shape.len() == 2 { Tensor::new(shape, vec![1_i64; count]) } else { Tensor::new(shape, vec![0.5_f32; count]) }
        .unwrap()
}

/// Runs a session on what [`input`] gives.
pub(crate) fn bare_run(session: &mut Session, inputs: &[Tensor]) {
    fn view(tensor: &Tensor) -> SessionInputValue<'_> {
        match tensor.as_slice::<i64>() {
            Some(ids) => TensorRef::from_array_view((tensor.shape(), ids)).unwrap().into(),
            None => TensorRef::from_array_view((tensor.shape(), tensor.as_slice::<f32>().unwrap())).unwrap().into(),
        }
    }
    let inputs: Vec<_> = inputs.iter().map(view).collect();
    assert!(session.run(inputs.as_slice()).unwrap().len() > 0);
}
