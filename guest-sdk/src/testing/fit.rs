//! Whether values are what a signature says: what gpux checks before and after a request.

use std::collections::HashMap;

use super::kind;
use crate::{Dim, Kind, Port, Signature, TensorKind, Value, Values};

/// The inputs in the order of their ports.
pub(super) fn inputs(signature: &Signature, mut given: Values) -> Result<Values, String> {
    let mut names = HashMap::new();
    let mut inputs = Values::new();
    for port in &signature.inputs {
        match given.take(&port.name) {
            Some(value) => {
                value_fits(port, &value, &mut names).map_err(|why| format!("input {why}"))?;
                inputs = inputs.with(&port.name, value);
            }
            None if port.optional => {}
            None => return Err(format!("the input `{}` is missing", port.name)),
        }
    }
    match given.iter().next() {
        Some((name, _)) => Err(format!("there is no input `{name}`")),
        None => Ok(inputs),
    }
}

pub(super) fn results(signature: &Signature, given: &Values) -> Result<(), String> {
    let mut names = HashMap::new();
    for (name, value) in given.iter() {
        let port = signature.outputs.iter().find(|port| port.name == name);
        let port = port.ok_or_else(|| format!("it gave `{name}`, which it does not name as an output"))?;
        value_fits(port, value, &mut names).map_err(|why| format!("output {why}"))?;
    }
    let count = |port: &Port| given.iter().filter(|(name, _)| *name == port.name).count();
    match signature.outputs.iter().find(|port| count(port) != 1) {
        Some(port) => Err(format!("it gave its output `{}` {} times, not once", port.name, count(port))),
        None => Ok(()),
    }
}

fn value_fits(port: &Port, value: &Value, names: &mut HashMap<String, u32>) -> Result<(), String> {
    if let Value::Json(text) = value
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
    {
        return Err(format!("`{}` is no JSON: {error}", port.name));
    }
    let is = kind(value);
    match (&port.kind, &is) {
        (Kind::Any, _) | (Kind::Text, Kind::Text) | (Kind::Bytes, Kind::Bytes) | (Kind::Json, Kind::Json) => Ok(()),
        (Kind::Tensor(wanted), Kind::Tensor(is)) => {
            tensor_fits(wanted, is, names).map_err(|why| format!("`{}`: {why}", port.name))
        }
        (wanted, is) => Err(format!("`{}` is {is:?}, not {wanted:?}", port.name)),
    }
}

fn tensor_fits(wanted: &TensorKind, is: &TensorKind, names: &mut HashMap<String, u32>) -> Result<(), String> {
    if !wanted.elements.is_empty() && !wanted.elements.contains(&is.elements[0]) {
        return Err(format!("the element type is {}, not {:?}", is.elements[0], wanted.elements));
    }
    if let (Some(wanted), Some(is)) = (wanted.layout, is.layout)
        && wanted != is
    {
        return Err(format!("the layout is {is:?}, not {wanted:?}"));
    }
    let (Some(wanted), Some(is)) = (&wanted.shape, &is.shape) else { return Ok(()) };
    if wanted.len() != is.len() {
        return Err(format!("it has {} axes, not {}", is.len(), wanted.len()));
    }
    for (axis, dims) in wanted.iter().zip(is).enumerate() {
        let (wanted, is) = match dims {
            (Dim::Fixed(wanted), Dim::Fixed(is)) => (*wanted, *is),
            (Dim::Named(name), Dim::Fixed(is)) => (*names.entry(name.clone()).or_insert(*is), *is),
            _ => continue,
        };
        if wanted != is {
            return Err(format!("axis {axis} is {is}, not {wanted}"));
        }
    }
    Ok(())
}
