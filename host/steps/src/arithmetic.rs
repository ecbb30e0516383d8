//! Which numbers a step gives, told apart between versions of gpux.

/// The steps that no longer give what version 0.1.0 gave for the same options, with how often that has changed.
///
/// A vector's space id depends on it. Count a step up when it gives other values than in the release before, beyond
/// rounding, or when an option that has no default in its schema is filled in otherwise. Other defaults, and new options,
/// change the id by themselves.
const CHANGES: &[(&str, u32)] = &[];

/// Changes with every change of the values that the step gives for the same options.
pub fn arithmetic_version(step: &str) -> u32 {
    CHANGES.iter().find(|(name, _)| *name == step).map_or(0, |(_, changes)| *changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_changes_of_steps_that_exist() {
        for (name, changes) in CHANGES {
            assert!(*changes > 0 && super::super::all().iter().any(|step| step.name == *name), "{name}");
        }
        assert_eq!(arithmetic_version("tokenize"), 0);
    }
}
