//! The limits of component steps, checked against the policy's ceiling.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::time::Duration;

use gpux_config::{Diagnostic, Spanned, WasmLimits};
use gpux_core::{Size, TimeSpan};
use gpux_sandbox::{Limits, for_each_limit};

/// A limit as gpux.yml writes it.
trait WrittenLimit: Copy + Display {
    /// the type of its field in [`Limits`]
    type Limit: PartialOrd;

    fn to_limit(self) -> Self::Limit;

    /// The limit in words.
    fn describe(limit: &Self::Limit) -> String;
}

impl WrittenLimit for Size {
    type Limit = usize;

    fn to_limit(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn describe(limit: &usize) -> String {
        Self(*limit as u64).to_string()
    }
}

impl WrittenLimit for TimeSpan {
    type Limit = Duration;

    fn to_limit(self) -> Duration {
        self.0
    }

    fn describe(limit: &Duration) -> String {
        Self(*limit).to_string()
    }
}

impl WrittenLimit for NonZeroU32 {
    type Limit = usize;

    fn to_limit(self) -> usize {
        self.get() as usize
    }

    fn describe(limit: &usize) -> String {
        limit.to_string()
    }
}

/// `limits` with the values that `asked` sets.
pub(super) fn apply(mut limits: Limits, asked: &WasmLimits) -> Limits {
    macro_rules! set {
        ($($name:ident)*) => {
            $(if let Some(written) = &asked.$name {
                limits.$name = written.value.to_limit();
            })*
        };
    }
    for_each_limit!(set);
    limits
}

/// The limits that a step asks for; one above the operator's ceiling is a mistake.
pub(super) fn resolve(asked: &WasmLimits, ceiling: &Limits) -> Result<Limits, Vec<Diagnostic>> {
    macro_rules! faults {
        ($($name:ident)*) => { [$(above(stringify!($name), asked.$name.as_ref(), &ceiling.$name)),*] };
    }
    let faults: Vec<_> = for_each_limit!(faults).into_iter().flatten().collect();
    if faults.is_empty() { Ok(apply(Limits::default().capped(ceiling), asked)) } else { Err(faults) }
}

fn above<T: WrittenLimit>(name: &str, asked: Option<&Spanned<T>>, ceiling: &T::Limit) -> Option<Diagnostic> {
    let asked = asked.filter(|asked| asked.value.to_limit() > *ceiling)?;
    let message = format!("`{name}: {asked}` is above the operator's ceiling of {}", T::describe(ceiling));
    let hint = format!("lower it, or raise the ceiling with `--limit {name}={asked}`");
    Some(Diagnostic::new("ceiling", asked.span.clone(), message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_written() {
        macro_rules! exhaustive {
            ($($name:ident)*) => { WasmLimits { $($name: None),* } };
        }
        assert_eq!(for_each_limit!(exhaustive), WasmLimits::default());
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
