//! "Did you mean …?"

/// The name nearest to `written`, if one is near enough to be a misspelling or the whole of it.
pub fn closest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(written, names, is_abbreviation)
}

/// The name nearest to `written`, if one is near enough to be a misspelling of it.
pub(crate) fn misspelled<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest(written, names, |_, _| false)
}

fn nearest<'a>(
    written: &str,
    names: impl IntoIterator<Item = &'a str>,
    is_short_for: impl Fn(&str, &str) -> bool,
) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', ' '], "_");
    let written = plain(written);
    if written.len() > 64 {
        return None;
    }
    names
        .into_iter()
        .map(|name| {
            let other = plain(name);
            let distance = strsim::osa_distance(&written, &other);
            // In a word of three letters one wrong letter is another word: `gpu` is not `cpu`.
            let length = written.chars().count();
            let near = distance <= if length < 4 { 0 } else { length / 3 } || is_anagram(&written, &other, distance);
            let similar = length > 4 && strsim::jaro_winkler(&written, &other) >= 0.92;
            (name, distance, near || similar || is_short_for(&written, &other))
        })
        .filter(|(.., near)| *near)
        .min_by_key(|(_, distance, _)| *distance)
        .map(|(name, ..)| name)
}

/// Whether two neighbouring letters changed places: `rnu` for `run`.
fn is_anagram(written: &str, other: &str, distance: usize) -> bool {
    let sorted = |text: &str| {
        let mut letters: Vec<_> = text.chars().collect();
        letters.sort_unstable();
        letters
    };
    distance == 1 && sorted(written) == sorted(other)
}

/// Whether `short` is `long` with letters left out, such as `f32` for `float32`.
fn is_abbreviation(short: &str, long: &str) -> bool {
    let mut rest = long.chars();
    short.len() >= 3
        && short.chars().next() == long.chars().next()
        && short.chars().all(|c| rest.any(|other| other == c))
}

/// "`a`, `b` or `c`", cut after a dozen.
pub fn list<S: AsRef<str>>(names: &[S], last: &str) -> String {
    const MOST: usize = 24;
    let quoted: Vec<_> = names.iter().take(MOST).map(|name| format!("`{}`", name.as_ref())).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some(_) if names.len() > MOST => format!("{} and {} more", quoted.join(", "), names.len() - MOST),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names() {
        let keys = ["name", "version", "model", "models", "serving", "preprocessing", "max_length", "float32"];
        for (written, meant) in [
            ("modle", Some("model")),
            ("Serving", Some("serving")),
            ("max-length", Some("max_length")),
            ("preprocesing", Some("preprocessing")),
            ("f32", Some("float32")),
            ("nmae", Some("name")),
            ("banana", None),
            ("x", None),
        ] {
            assert_eq!(closest(written, keys), meant, "{written}");
        }
        assert_eq!(closest("rnu", ["run", "serve"]), Some("run"));
        assert_eq!(closest("gpu", ["cpu", "pgu"]), Some("pgu"));
    }
}
