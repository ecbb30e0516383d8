//! The limits of component steps, checked against the policy's ceiling.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::time::Duration;

use gpux_config::{Diagnostic, Spanned, WasmLimits};
use gpux_core::{Size, TimeSpan};
use gpux_sandbox::Limits;

/// A limit's name, its value in gpux.yml, and its field in [`Limits`].
type LimitRow<'a, T, L> = (&'static str, &'a Option<Spanned<T>>, &'a mut L);

fn sizes<'a>(asked: &'a WasmLimits, limits: &'a mut Limits) -> [LimitRow<'a, Size, usize>; 7] {
    [
        ("memory", &asked.memory, &mut limits.memory),
        ("input", &asked.input, &mut limits.input),
        ("result", &asked.result, &mut limits.result),
        ("copy", &asked.copy, &mut limits.copy),
        ("log", &asked.log, &mut limits.log),
        ("component_size", &asked.component_size, &mut limits.component_size),
        ("compile_memory", &asked.compile_memory, &mut limits.compile_memory),
    ]
}

fn times<'a>(asked: &'a WasmLimits, limits: &'a mut Limits) -> [LimitRow<'a, TimeSpan, Duration>; 3] {
    [
        ("time", &asked.time, &mut limits.time),
        ("setup_time", &asked.setup_time, &mut limits.setup_time),
        ("compile_time", &asked.compile_time, &mut limits.compile_time),
    ]
}

fn counts<'a>(asked: &'a WasmLimits, limits: &'a mut Limits) -> [LimitRow<'a, NonZeroU32, usize>; 9] {
    [
        ("table_elements", &asked.table_elements, &mut limits.table_elements),
        ("memories", &asked.memories, &mut limits.memories),
        ("tables", &asked.tables, &mut limits.tables),
        ("instances", &asked.instances, &mut limits.instances),
        ("handles", &asked.handles, &mut limits.handles),
        ("calls", &asked.calls, &mut limits.calls),
        ("values", &asked.values, &mut limits.values),
        ("name_length", &asked.name_length, &mut limits.name_length),
        ("json_depth", &asked.json_depth, &mut limits.json_depth),
    ]
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// `limits` with the values that `asked` sets.
pub(super) fn apply(mut limits: Limits, asked: &WasmLimits) -> Limits {
    for (_, written, limit) in sizes(asked, &mut limits) {
        *limit = written.as_ref().map_or(*limit, |size| bytes(size.value));
    }
    for (_, written, limit) in times(asked, &mut limits) {
        *limit = written.as_ref().map_or(*limit, |time| time.value.0);
    }
    for (_, written, limit) in counts(asked, &mut limits) {
        *limit = written.as_ref().map_or(*limit, |count| count.value.get() as usize);
    }
    limits
}

/// The limits that a step asks for; one above the operator's ceiling is a mistake.
pub(super) fn resolve(asked: &WasmLimits, ceiling: &Limits) -> Result<Limits, Vec<Diagnostic>> {
    let (mut limits, mut most) = (Limits::default().capped(ceiling), ceiling.clone());
    let mut faults = Vec::new();
    for ((name, written, limit), (.., most)) in sizes(asked, &mut limits).into_iter().zip(sizes(asked, &mut most)) {
        let Some(size) = written else { continue };
        *limit = bytes(size.value);
        if *limit > *most {
            faults.push(above(name, size, Size(*most as u64)));
        }
    }
    for ((name, written, limit), (.., most)) in times(asked, &mut limits).into_iter().zip(times(asked, &mut most)) {
        let Some(time) = written else { continue };
        *limit = time.value.0;
        if *limit > *most {
            faults.push(above(name, time, TimeSpan(*most)));
        }
    }
    for ((name, written, limit), (.., most)) in counts(asked, &mut limits).into_iter().zip(counts(asked, &mut most)) {
        let Some(count) = written else { continue };
        *limit = count.value.get() as usize;
        if *limit > *most {
            faults.push(above(name, count, most));
        }
    }
    if faults.is_empty() { Ok(limits) } else { Err(faults) }
}

fn above<T: Display>(name: &str, asked: &Spanned<T>, most: impl Display) -> Diagnostic {
    let message = format!("`{name}: {asked}` is above the operator's ceiling of {most}");
    let hint = format!("lower it, or raise the ceiling with `--limit {name}={asked}`");
    Diagnostic::new("ceiling", asked.span.clone(), message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_every_limit_of_the_sandbox() {
        let sandbox = serde_json::to_value(Limits::default()).unwrap();
        let sandbox: Vec<_> = sandbox.as_object().unwrap().keys().map(String::as_str).collect();
        let (asked, mut limits) = (WasmLimits::default(), Limits::default());
        let mut ours: Vec<_> = sizes(&asked, &mut limits).iter().map(|(name, ..)| *name).collect();
        ours.extend(times(&asked, &mut limits).iter().map(|(name, ..)| *name));
        ours.extend(counts(&asked, &mut limits).iter().map(|(name, ..)| *name));
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        let mut known = sandbox;
        known.sort_unstable();
        assert_eq!(sorted(ours), known);
    }

    #[test]
    fn rejects_limits_above_the_ceiling() {
        let asked = WasmLimits::parse("test", "memory: 200MiB\nhandles: 5000\ntime: 2s").unwrap();
        let ceiling = apply(Limits::default(), &WasmLimits::parse("test", "memory: 1GiB").unwrap());
        let faults = resolve(&asked, &ceiling).unwrap_err();
        let messages: Vec<_> = faults.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`time: 2s` is above the operator's ceiling of 1s",
                "`handles: 5000` is above the operator's ceiling of 1024"
            ]
        );
        let asked = WasmLimits::parse("test", "memory: 200MiB\ntime: 5ms").unwrap();
        let limits = resolve(&asked, &ceiling).unwrap();
        assert_eq!((limits.memory, limits.time), (200 << 20, Duration::from_millis(5)));
    }
}
