//! `normalize-text`: text → the same text in one way of writing.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use unicode_categories::UnicodeCategories as _;
use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{
    IsNormalized, UnicodeNormalization as _, is_nfc_quick, is_nfd_quick, is_nfkc_quick, is_nfkd_quick,
};

use super::text_input::{self, MAX_TEXT};
use crate::deadline::Deadline;
use crate::operation::{BuiltinStep, Inputs, Operation};
use crate::ports;
use gpux_core::{Builtin, Group, Kind, Mismatch, Port, Signature, StepFailure, Tensor, Value};

/// Bytes or characters of text between two deadline checks.
const PIECE: usize = 1 << 18;

/// The most combining marks on one letter, which are held in memory while they are sorted.
const MOST_MARKS: usize = 1 << 14;
const MARKS: usize = 32 * MOST_MARKS;

/// Options of `normalize-text`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Options {
    /// Whether control, format and private characters are removed, and every white space becomes a
    /// plain space, as `clean_text` of `BertNormalizer` does. Default: false.
    clean: bool,
    /// Whether a space is put on either side of each Chinese character. Default: false.
    cjk_spaces: bool,
    /// Whether accents are taken off: letters are decomposed (NFD) and their marks removed. Default: false.
    strip_accents: bool,
    /// The Unicode form: `nfc`, `nfd`, `nfkc` or `nfkd`. Default: none, the text stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<NormalForm>,
    /// `keep` (default), `lower` (as Python's `str.lower`) or `lower_chars` (each character for itself,
    /// as `BertNormalizer` does: a Greek sigma at the end of a word becomes `σ`, not `ς`).
    case: Case,
    /// White space: `keep` (default), `strip` (from both ends) or `collapse` (also every run of it into
    /// one space).
    white_space: WhiteSpace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum NormalForm {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
}

impl NormalForm {
    /// Whether a quick look is enough to say that the text has this form.
    fn is_that_of(self, text: &str) -> bool {
        let quick = match self {
            Self::Nfc => is_nfc_quick,
            Self::Nfd => is_nfd_quick,
            Self::Nfkc => is_nfkc_quick,
            Self::Nfkd => is_nfkd_quick,
        };
        quick(text.chars()) == IsNormalized::Yes
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Case {
    #[default]
    Keep,
    Lower,
    LowerChars,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum WhiteSpace {
    #[default]
    Keep,
    Strip,
    Collapse,
}

/// Brings text into one way of writing, in the order of the options.
///
/// Takes a text, a JSON list of texts or a string tensor of one axis, and gives the same again.
/// Follows Python's `unicodedata` and `str`, and with `clean`, `cjk_spaces`, `strip_accents` and
/// `case: lower_chars` Hugging Face's `BertNormalizer`.
struct NormalizeText {
    options: Options,
}

pub(super) fn builtin() -> Builtin {
    Builtin {
        name: "normalize-text",
        summary: "Brings text into one way of writing",
        group: Group::Text,
        follows: "Python: unicodedata.normalize, and tokenizers: BertNormalizer",
        example: "normalize-text: { form: nfkc, case: lower, white_space: collapse }",
        schema: || schemars::schema_for!(Options),
        build: |options, _| Ok(Box::new(NormalizeText::new(ports::options(options)?))),
    }
}

impl NormalizeText {
    fn new(options: Options) -> BuiltinStep<Self> {
        let output = Port { description: "the same, normalized".into(), ..Port::new("text", Kind::Any) };
        let signature = Signature::unary(text_input::port("text", "a text, or a list of texts"), output);
        BuiltinStep::new(signature, json!(options), Self { options })
    }

    /// How many times as long a text can become (Unicode Standard Annex #15, 9.2: expansion in UTF-8).
    fn growth(&self) -> usize {
        match self.options.form {
            Some(NormalForm::Nfkc | NormalForm::Nfkd) => 11,
            Some(NormalForm::Nfc | NormalForm::Nfd) => 3,
            None if self.options.strip_accents => 3,
            None => 1,
        }
    }

    fn normalize(&self, text: &str, deadline: &Deadline) -> Result<String, StepFailure> {
        let options = &self.options;
        let mut text = Cow::Borrowed(text);
        if options.clean {
            text = collect_bounded(
                text.chars().filter(|c| !is_removed(*c)).map(|c| if c.is_whitespace() { ' ' } else { c }),
                deadline,
            )?;
        }
        // In ASCII there is nothing to decompose.
        if !text.is_ascii() {
            if options.cjk_spaces {
                text = collect_bounded(text.chars().flat_map(space_around_chinese), deadline)?;
            }
            if options.strip_accents {
                check_marks(&text, deadline)?;
                text = collect_bounded(text.nfd().filter(|c| !c.is_mark_nonspacing()), deadline)?;
            }
            if let Some(form) = options.form.filter(|form| !form.is_that_of(&text)) {
                check_marks(&text, deadline)?;
                text = match form {
                    NormalForm::Nfc => collect_bounded(text.nfc(), deadline)?,
                    NormalForm::Nfd => collect_bounded(text.nfd(), deadline)?,
                    NormalForm::Nfkc => collect_bounded(text.nfkc(), deadline)?,
                    NormalForm::Nfkd => collect_bounded(text.nfkd(), deadline)?,
                };
            }
        }
        text = match options.case {
            Case::Keep => text,
            Case::Lower => lower(&text, deadline)?.into(),
            Case::LowerChars => collect_bounded(text.chars().flat_map(char::to_lowercase), deadline)?,
        };
        Ok(match options.white_space {
            WhiteSpace::Keep => text.into_owned(),
            WhiteSpace::Strip => text.trim_matches(is_space).to_owned(),
            WhiteSpace::Collapse => collapse_spaces(&text, deadline)?,
        })
    }
}

/// Rejects a letter with more marks than any real text has: all of them are held and sorted together.
fn check_marks(text: &str, deadline: &Deadline) -> Result<(), StepFailure> {
    let mut marks = 0;
    for letter in text.chars() {
        deadline.check_after(1)?;
        // Letters that decompose to marks, and marks of class 0.
        let becomes = matches!(letter, '\u{f73}' | '\u{f75}' | '\u{f81}' | '\u{ff9e}' | '\u{ff9f}');
        marks = if becomes || !letter.is_ascii() && canonical_combining_class(letter) > 0 { marks + 1 } else { 0 };
        if marks > MOST_MARKS {
            let message = format!("a letter has more than {MOST_MARKS} combining marks");
            return Err(StepFailure::InvalidInput(message));
        }
    }
    Ok(())
}

/// The characters as text. A single one can become eighteen (U+FDFA), so the sum is held in bounds.
fn collect_bounded<'t>(chars: impl Iterator<Item = char>, deadline: &Deadline) -> Result<Cow<'t, str>, StepFailure> {
    let mut text = String::new();
    let mut chars = chars.peekable();
    while chars.peek().is_some() {
        deadline.check()?;
        text.extend(chars.by_ref().take(PIECE));
        if text.len() > MAX_TEXT {
            let message = format!("the normalized text is over {MAX_TEXT} bytes; send less at once");
            return Err(StepFailure::InvalidInput(message));
        }
    }
    Ok(Cow::Owned(text))
}

/// Whether a letter decides, for any sigma beside it, if that ends a word: the sigma looks no further. What ignores
/// case (marks and modifiers) does not.
fn settles(letter: char) -> bool {
    letter != 'Σ'
        && (letter.is_ascii_alphabetic()
            || (letter.is_uppercase() || letter.is_lowercase())
                && !letter.is_letter_modifier()
                && !letter.is_mark_nonspacing())
}

/// Where a text can be cut, at or after `from`: no letter looks beyond.
fn cut(text: &str, from: usize) -> usize {
    let mut settled = false;
    for (at, letter) in text[from..].char_indices() {
        let settles = settles(letter);
        if letter.is_whitespace() || settled && settles {
            return from + at;
        }
        settled = settles;
    }
    text.len()
}

/// In lower case, as Python's `str.lower`, in pieces.
fn lower(mut text: &str, deadline: &Deadline) -> Result<String, StepFailure> {
    let mut lower = String::with_capacity(text.len());
    while !text.is_empty() {
        deadline.check()?;
        let (piece, rest) = text.split_at(cut(text, text.floor_char_boundary(PIECE)));
        lower.push_str(&piece.to_lowercase());
        text = rest;
    }
    Ok(lower)
}

/// Whether `clean_text` of `BertNormalizer` removes a letter.
fn is_removed(char: char) -> bool {
    match char {
        '\t' | '\n' | '\r' => false,
        '\0' | '\u{fffd}' => true,
        _ if char.is_ascii() => char.is_ascii_control(),
        _ => char.is_other(),
    }
}

/// White space as of Python's `str.isspace`: also the separators of ASCII.
fn is_space(char: char) -> bool {
    char.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&char)
}

fn collapse_spaces(text: &str, deadline: &Deadline) -> Result<String, StepFailure> {
    let mut collapsed = String::with_capacity(text.len());
    for word in text.split(is_space).filter(|word| !word.is_empty()) {
        deadline.check_after(word.len() + 1)?;
        if !collapsed.is_empty() {
            collapsed.push(' ');
        }
        collapsed.push_str(word);
    }
    Ok(collapsed)
}

/// A character, with a space on either side where it is Chinese as `BertNormalizer` understands it.
fn space_around_chinese(char: char) -> impl Iterator<Item = char> {
    let chinese = matches!(u32::from(char),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f);
    let space = chinese.then_some(' ');
    [space, Some(char), space].into_iter().flatten()
}

impl Operation for NormalizeText {
    fn infer(&self, signature: &Signature, inputs: &[Option<Kind>]) -> Result<Vec<Kind>, Mismatch> {
        let Some(Some(given)) = inputs.first() else { return Ok(vec![Kind::Any]) };
        text_input::inferred_count(&signature.inputs[0], given)?;
        Ok(vec![given.clone()])
    }

    fn buffers(&self, inputs: &[Option<Value>]) -> usize {
        // The text before and after a pass, which can be longer, and a few texts for each of a list.
        let size = |value: &Value| {
            let texts = text_input::count_and_bytes(value).0.saturating_mul(4 * size_of::<serde_json::Value>());
            let bytes = value.byte_len();
            let grown = if text_input::is_ascii(value) { bytes } else { bytes.saturating_mul(self.growth()) };
            // Longer ones are refused.
            grown.min(bytes.max(MAX_TEXT)).saturating_mul(4).saturating_add(texts)
        };
        inputs.iter().flatten().map(size).fold(MARKS, usize::saturating_add)
    }

    fn run(&self, mut inputs: Inputs<'_>, deadline: &Deadline) -> Result<Vec<Value>, StepFailure> {
        let (name, given) = inputs.named()?;
        let one = matches!(&given, Value::Json(json) if json.is_string());
        let shape = given.as_tensor().map(|tensor| tensor.shape().to_vec());
        let json = matches!(&given, Value::Json(_));
        let texts = text_input::read(given, name)?;
        text_input::check_size(texts.iter())?;
        let mut left = MAX_TEXT;
        let normalize = |text: &String| {
            deadline.check()?;
            let text = self.normalize(text, deadline)?;
            left = left.checked_sub(text.len()).ok_or_else(|| {
                StepFailure::InvalidInput(format!("the normalized texts are over {MAX_TEXT} bytes; send less at once"))
            })?;
            Ok(text)
        };
        let mut texts = texts.iter().map(normalize).collect::<Result<Vec<_>, StepFailure>>()?;
        Ok(vec![match shape {
            Some(shape) => Tensor::new(shape, texts)?.into(),
            None if json && !one => serde_json::Value::from(texts).into(),
            None => {
                let text = texts.pop().unwrap_or_default();
                if json { serde_json::Value::String(text).into() } else { text.into() }
            }
        }])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::*;
    use crate::reference;
    use gpux_core::{Context, Dim, ElementType, Step as _, TensorKind};

    fn run(options: serde_json::Value, value: impl Into<Value>) -> Result<Value, StepFailure> {
        let step = NormalizeText::new(ports::options(options).unwrap());
        Ok(step.run(vec![Some(value.into())], &mut Context::default())?.remove(0))
    }

    #[test]
    fn keeps_the_form_of_text_values() {
        let lower = || json!({"case": "lower"});
        assert_eq!(run(lower(), "ΑΣ").unwrap(), "ας".into());
        assert_eq!(run(json!({"case": "lower_chars"}), "ΑΣ").unwrap(), "ασ".into());
        assert_eq!(run(lower(), json!("A")).unwrap(), json!("a").into());
        assert_eq!(run(lower(), json!(["A", "B"])).unwrap(), json!(["a", "b"]).into());
        let strings = |text: &str| Tensor::new([1], vec![text.to_owned()]).unwrap();
        assert_eq!(run(lower(), strings("A")).unwrap(), strings("a").into());
        for value in [json!([]).into(), json!([1]).into(), Value::from(vec![1_u8]), json!({"a": 1}).into()] {
            assert!(matches!(run(lower(), value), Err(StepFailure::InvalidInput(_))));
        }
    }

    #[test]
    fn infers_kind() {
        let step = NormalizeText::new(Options::default());
        assert_eq!(step.infer(&[Some(Kind::Text)]).unwrap(), [Kind::Text]);
        let strings = Kind::Tensor(TensorKind::shaped(ElementType::String, [Dim::Fixed(3)]));
        assert_eq!(step.infer(&[Some(strings.clone())]).unwrap(), [strings]);
        assert!(step.infer(&[Some(Kind::Bytes)]).is_err());
    }

    #[test]
    fn rejects_letters_with_too_many_marks() {
        let marked = |marks: usize| format!("a{}b\u{301}", "\u{301}\u{316}".repeat(marks / 2));
        for form in ["nfc", "nfd", "nfkc", "nfkd"] {
            assert!(run(json!({ "form": form }), marked(MOST_MARKS)).is_ok());
            let error = run(json!({ "form": form }), marked(MOST_MARKS + 2)).unwrap_err();
            assert!(error.to_string().contains("16384 combining marks"), "{error}");
        }
        assert!(run(json!({"strip_accents": true}), "\u{ff9e}".repeat(MOST_MARKS + 1)).is_err());
        assert!(run(json!({"case": "lower"}), marked(MOST_MARKS + 2)).is_ok());
    }

    #[test]
    fn bounds_growing_text() {
        let bomb = "\u{fdfa}".repeat(MAX_TEXT / 3);
        let error = run(json!({"form": "nfkd"}), bomb.as_str()).unwrap_err();
        assert!(error.to_string().contains("over"), "{error}");
        let error = run(json!({}), "a".repeat(MAX_TEXT + 1)).unwrap_err();
        assert!(error.to_string().contains("bytes"), "{error}");
    }

    /// A final sigma looks at the letters around it, so pieces end at white space.
    #[test]
    fn pieces_normalize_as_the_whole() {
        let text = "ΟΔΟΣ ΑΣ\u{301}Α ΣΑΣ.Σ\u{a0}İSTANBUL Σ ".repeat(20_000);
        assert!(text.len() > 3 * PIECE);
        assert_eq!(lower(&text, &Deadline::default()).unwrap(), text.to_lowercase());
        for letters in ["Σab", "aΣ'bΣ", "ab\u{345}Σ", "ʰΣa", "ДΣД"] {
            let word = letters.repeat(PIECE / 2);
            assert_eq!(lower(&word, &Deadline::default()).unwrap(), word.to_lowercase(), "{letters}");
        }
        assert_eq!(lower(&"ab".repeat(PIECE), &Deadline::exceeded_after(1)), Err(StepFailure::Timeout), "one word");
        let word = "Σ".repeat(PIECE);
        assert_eq!(lower(&word, &Deadline::default()).unwrap(), word.to_lowercase());
        assert_eq!(lower(&text, &Deadline::exceeded_after(2)), Err(StepFailure::Timeout));
        assert_eq!(collect_bounded(text.chars(), &Deadline::exceeded_after(2)), Err(StepFailure::Timeout));
    }

    #[test]
    fn accepts_any_characters() {
        let mut random = reference::random();
        let options = json!({"clean": true, "cjk_spaces": true, "strip_accents": true, "form": "nfkc", "case": "lower",
            "white_space": "collapse"});
        for _ in 0..300 {
            let text: String = (0..50).filter_map(|_| char::from_u32(random(0x11_0000) as u32)).collect();
            assert!(run(options.clone(), text).is_ok());
        }
    }
}
