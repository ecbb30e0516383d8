//! Attacks by handles: hoarded, forged, dropped twice, kept too long, given away twice.

use std::cell::RefCell;
use std::hint::black_box;

use super::gpux::pipeline::types::{ElementType, Error, NamedValue, Tensor, Value};
use super::refused;

thread_local! {
    /// A tensor made in `configure`, which no request may find.
    static KEPT: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

pub(super) fn attack(attack: &str, inputs: &[NamedValue]) -> Option<Result<Option<Value>, Error>> {
    let done = match attack {
        "big-tensor" => Err(refused(Tensor::zeros(ElementType::Uint8, &[1 << 30]))),
        "flood-tensors" => hoard(&[]),
        "hoard-tensors" => hoard(&[1 << 20]),
        // No byte in the component's memory but their places.
        "hoard-texts" => hoard_texts(vec![String::new(); 100_000]),
        // A byte each, for which the host allocates more.
        "hoard-letters" => hoard_texts(vec!["x".to_owned(); 100_000]),
        "flood-host-calls" => tensor().map(|tensor| {
            loop {
                black_box(tensor.shape());
            }
        }),
        "read-all-again" => match inputs.first() {
            Some(NamedValue { value: Value::Tensor(tensor), .. }) => loop {
                black_box(tensor.data());
            },
            _ => Err(Error::InvalidInput("it takes a tensor".into())),
        },
        // SAFETY: none, here and below: handles that are not ours are the attack.
        "forged-handle" => {
            black_box(unsafe { Tensor::from_handle(12_345) }.shape());
            Ok(())
        }
        "handle-of-others" => {
            // Whatever number another request's handle has, here it is nobody's.
            for handle in [0, 1, 2, 3, u32::MAX >> 4] {
                let tensor = unsafe { Tensor::from_handle(handle) };
                black_box(tensor.data());
                std::mem::forget(tensor);
            }
            Ok(())
        }
        "dropped-twice" => tensor().map(|tensor| {
            drop(unsafe { Tensor::from_handle(tensor.handle()) });
            drop(tensor);
        }),
        "used-after-drop" => tensor().map(|tensor| {
            drop(unsafe { Tensor::from_handle(tensor.handle()) });
            black_box(tensor.shape());
            std::mem::forget(tensor);
        }),
        "forged-result" => return Some(Ok(Some(Value::Tensor(unsafe { Tensor::from_handle(777) })))),
        _ => return None,
    };
    Some(done.map(|()| None))
}

/// For `configure`: leaves a handle behind.
pub(super) fn keep() {
    KEPT.set(tensor().ok());
}

/// For `process`: what `configure` left.
pub(super) fn kept() -> Result<Option<Value>, Error> {
    let kept = KEPT.take().ok_or(Error::Failed("the handle is gone".into()))?;
    kept.write(0, &[7]).map_err(Error::Failed)?;
    Ok(Some(Value::Tensor(kept)))
}

/// One handle as two results.
pub(super) fn returned_twice() -> Result<Vec<NamedValue>, Error> {
    let tensor = tensor()?;
    let again = unsafe { Tensor::from_handle(tensor.handle()) };
    let named = |name: &str, tensor| NamedValue { name: name.into(), value: Value::Tensor(tensor) };
    Ok(vec![named("out", tensor), named("again", again)])
}

fn tensor() -> Result<Tensor, Error> {
    Tensor::zeros(ElementType::Uint8, &[4]).map_err(Error::Failed)
}

/// Makes tensors and keeps them all.
fn hoard(shape: &[u32]) -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(Tensor::zeros(ElementType::Uint8, shape)));
    }
}

fn hoard_texts(texts: Vec<String>) -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(Tensor::create_text(&[texts.len() as u32], &texts)));
    }
}
