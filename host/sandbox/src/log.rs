//! The log of a guest: its newest lines, within a budget.

use std::collections::VecDeque;

use gpux_core::sanitize::is_unsafe_for_terminal;

/// Bytes of a line that are kept.
const LINE: usize = 4 << 10;

/// The newest lines, whose bytes together stay within a budget.
pub(super) struct LogTail {
    lines: VecDeque<String>,
    size: usize,
    budget: usize,
    dropped: usize,
    /// the ends of streams that have not come to a line's end, by the name of the stream
    partial: Vec<(&'static str, Vec<u8>)>,
}

impl LogTail {
    pub(super) fn new(budget: usize) -> Self {
        Self { lines: VecDeque::new(), size: 0, budget, dropped: 0, partial: Vec::new() }
    }

    pub(super) fn push(&mut self, level: &str, message: &str) {
        let line = format!("{level}: {}", sanitize(message.trim_end(), LINE.min(self.budget)));
        self.size += cost(&line);
        self.lines.push_back(line);
        while self.size > self.budget
            && let Some(oldest) = self.lines.pop_front()
        {
            self.size -= cost(&oldest);
            self.dropped += 1;
        }
    }

    /// Adds text that a guest writes to the stream `name`, line by line.
    pub(super) fn write(&mut self, name: &'static str, mut data: &[u8]) {
        while let Some(end) = data.iter().position(|byte| *byte == b'\n') {
            let mut line = self.take_rest(name);
            extend(&mut line, &data[..end]);
            self.push(name, &String::from_utf8_lossy(&line));
            data = &data[end + 1..];
        }
        if !data.is_empty() {
            let mut line = self.take_rest(name);
            extend(&mut line, data);
            self.partial.push((name, line));
        }
    }

    /// Adds the unfinished last line of the stream `name`.
    fn take_rest(&mut self, name: &str) -> Vec<u8> {
        let place = self.partial.iter().position(|(stream, _)| *stream == name);
        place.map(|place| self.partial.swap_remove(place).1).unwrap_or_default()
    }

    pub(super) fn newest(&self) -> Option<&str> {
        self.lines.back().map(String::as_str)
    }

    /// The lines, with a note of how many older ones are gone.
    pub(super) fn into_lines(mut self) -> Vec<String> {
        for (name, line) in std::mem::take(&mut self.partial) {
            self.push(name, &String::from_utf8_lossy(&line));
        }
        let note = (self.dropped > 0).then(|| format!("… {} older lines dropped (limit `log`)", self.dropped));
        note.into_iter().chain(self.lines).collect()
    }
}

/// Adds to a line as much as is kept of one.
fn extend(line: &mut Vec<u8>, data: &[u8]) {
    // One more, so that a line that is cut says so.
    line.extend(data.iter().take((LINE + 1).saturating_sub(line.len())));
}

/// Bytes that a line costs the host: empty ones are not free.
fn cost(line: &str) -> usize {
    line.len() + size_of::<String>()
}

/// Sanitizes untrusted text for display: at most `limit` bytes, without characters that control a terminal or make
/// text look like other text.
pub(super) fn sanitize(text: &str, limit: usize) -> String {
    let kept = &text[..text.floor_char_boundary(limit)];
    let mut plain: String = kept.chars().map(|c| if is_unsafe_for_terminal(c) { ' ' } else { c }).collect();
    if kept.len() < text.len() {
        plain.push_str(" …");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_lines_within_the_budget() {
        let mut tail = LogTail::new(200);
        for line in 0..1000 {
            tail.push("info", &format!("line {line}"));
        }
        assert_eq!(tail.newest(), Some("info: line 999"));
        let lines = tail.into_lines();
        assert_eq!(lines[0], "… 995 older lines dropped (limit `log`)");
        assert_eq!(lines.len(), 6);
    }

    #[test]
    fn splits_streams_into_lines() {
        let mut tail = LogTail::new(1 << 20);
        tail.write("stdout", b"one\ntw");
        tail.write("stderr", b"oh\xff");
        tail.write("stdout", b"o\n\nthree");
        tail.write("stdout", &vec![b'x'; 1 << 20]);
        let lines = tail.into_lines();
        assert_eq!(lines[..3], ["stdout: one", "stdout: two", "stdout: "]);
        assert_eq!(lines[3], "stderr: oh\u{fffd}");
        assert!(lines[4].starts_with("stdout: threexxx") && lines[4].ends_with("x …") && lines[4].len() < LINE + 20);
    }

    #[test]
    fn truncates_long_lines_at_character_boundaries() {
        let mut tail = LogTail::new(1 << 20);
        tail.push("warn", &"é".repeat(5000));
        let line = &tail.into_lines()[0];
        assert!(line.starts_with("warn: é") && line.ends_with("é …") && line.len() < LINE + 20, "{}", line.len());
    }

    #[test]
    fn removes_terminal_control_characters() {
        assert_eq!(sanitize("a\x1b[2Jb\nc", 100), "a [2Jb c");
        assert_eq!(sanitize("safe\u{202e}gpj.exe\u{2066}x\u{2069}\u{2028}é", 100), "safe gpj.exe x  é");
    }
}
