use std::borrow::Cow;

use serde::de::Error as _;

use super::error::Fault;

/// The words of JSON, read from the front.
pub(super) struct Text<'de> {
    rest: &'de str,
}

impl<'de> Text<'de> {
    pub(super) fn new(json: &'de str) -> Self {
        Self { rest: json }
    }

    /// The first byte after white space.
    pub(super) fn peek(&mut self) -> Result<u8, Fault> {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r']);
        self.rest.bytes().next().ok_or_else(|| Fault::custom("the JSON ends too early"))
    }

    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(Fault::custom("there is more after the JSON")),
        }
    }

    /// Passes `byte`, which is ASCII.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek()? != byte {
            return Err(Fault::custom(format_args!("no `{}` where there should be one", char::from(byte))));
        }
        self.pass(1);
        Ok(())
    }

    pub(super) fn word(&mut self, word: &str) -> Result<(), Fault> {
        self.rest = self.rest.strip_prefix(word).ok_or_else(|| Fault::custom("not JSON"))?;
        Ok(())
    }

    /// A number, by JSON's own rules: no leading zero or plus, digits on both sides of a point.
    pub(super) fn number(&mut self) -> Result<&'de str, Fault> {
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let fault = || Fault::custom("not JSON");
        let mut end = usize::from(bytes.first() == Some(&b'-'));
        let whole = digits(end);
        if whole == 0 || (whole > 1 && bytes[end] == b'0') {
            return Err(fault());
        }
        end += whole;
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            if fraction == 0 {
                return Err(fault());
            }
            end += 1 + fraction;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent == 0 {
                return Err(fault());
            }
            end += 1 + sign + exponent;
        }
        let number = &self.rest[..end];
        self.pass(end);
        Ok(number)
    }

    /// A text in quotes; borrowed where nothing in it is escaped.
    pub(super) fn string(&mut self) -> Result<Cow<'de, str>, Fault> {
        if !self.rest.starts_with('"') {
            return Err(Fault::custom("no text in quotes where there should be one"));
        }
        self.pass(1);
        let mut text = Cow::Borrowed("");
        loop {
            let plain = self.rest.bytes().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1f)).count();
            let part = &self.rest[..plain];
            text = if text.is_empty() { Cow::Borrowed(part) } else { text + part };
            self.pass(plain);
            match self.rest.bytes().next() {
                Some(b'"') => {
                    self.pass(1);
                    return Ok(text);
                }
                Some(b'\\') => text.to_mut().push(self.escaped()?),
                Some(_) => return Err(Fault::custom("a control character in a text")),
                None => return Err(Fault::custom("a text without an end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Fault> {
        let escape = self.rest.as_bytes().get(1).copied();
        let plain = match escape {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(Fault::custom("an unknown escape in a text")),
        };
        self.pass(2);
        Ok(plain)
    }

    /// `\u` with four digits, or two of them that make one character.
    fn unicode(&mut self) -> Result<char, Fault> {
        let mut unit = || {
            let digits = self.rest.strip_prefix("\\u")?.get(..4)?;
            let unit = u16::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
            self.rest = &self.rest[6..];
            Some(unit)
        };
        let first = unit();
        let units = match first {
            Some(0xd800..=0xdbff) => [first, unit()],
            _ => [first, None],
        };
        let character = char::decode_utf16(units.into_iter().flatten()).next();
        character.and_then(Result::ok).ok_or_else(|| Fault::custom("a broken \\u escape in a text"))
    }

    /// `count` must end where a character does.
    fn pass(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}
