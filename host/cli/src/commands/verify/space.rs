//! `gpux verify --space`: whether the vectors of two servers can lie in one index.

use serde_json::json;

use super::super::schema::save_or_print;
use super::Arguments;
use super::embeddings_client::{Embeddings, EmbeddingsClient};
use crate::exit::Exit;
use crate::measure::known_requests;
use crate::printer::{Printer, pluralize, pretty, table};
use gpux_core::Value;

/// How many neighbours of a text are looked at.
const NEIGHBOURS: usize = 10;

/// Texts that tokenizers and truncation may treat differently, and sentences with near and far neighbours.
const TEXTS: &[&str] = &[
    "What is Deep Learning?",
    "Deep learning is a part of machine learning that trains networks of many layers.",
    "A neural network learns weights from examples.",
    "The weather in Lisbon is warm in May.",
    "It rains in Hamburg in November.",
    "Tomorrow it will be sunny and dry.",
    "How do I bake bread with sourdough?",
    "Mix flour, water and salt, and let the dough rest overnight.",
    "The oven must be hot before the loaf goes in.",
    "A small and fast web server",
    "an HTTP server with reverse proxy and TLS",
    "command line tool that edits pictures",
    "raster graphics editor",
    "a program that plays music",
    "player for MP3 and Ogg Vorbis",
    "library for parsing JSON in C",
    "fast XML parser",
    "a database that keeps tables in one file",
    "relational database server",
    "key-value store in memory",
    "The court decided in favour of the tenant.",
    "The landlord has to pay back the deposit.",
    "Shares fell by three per cent after the report.",
    "The central bank raised interest rates.",
    "She won the race in 10.8 seconds.",
    "The match ended in a draw.",
    "Penguins live in the southern hemisphere.",
    "Whales are mammals.",
    "The heart pumps blood through the body.",
    "Vaccines train the immune system.",
    "Take the second street on the left.",
    "The train to Paris leaves at 7:45 from platform 9.",
    "I love this film!",
    "I did not like this film at all.",
    "not good",
    "good",
    "a",
    "A",
    "the the the the the",
    " leading and trailing spaces ",
    "line\nbreaks\tand tabs",
    "UPPER CASE AND lower case",
    "e-mail@example.org, https://example.org/a?b=c#d",
    "3.14159 2,718 1e-9 0x1F $12.50 50%",
    "fn main() { println!(\"hello\"); }",
    "SELECT name FROM users WHERE id = 5;",
    "naïve café déjà vu",
    "nai\u{308}ve cafe\u{301}",
    "Ein kleiner, schneller Webserver",
    "Un serveur web petit et rapide",
    "Un servidor web pequeño y rápido",
    "Небольшой и быстрый веб-сервер",
    "一个小而快的网络服务器",
    "小さくて速いウェブサーバー",
    "작고 빠른 웹 서버",
    "خادم ويب صغير وسريع",
    "एक छोटा और तेज़ वेब सर्वर",
    "ﬁne ligatures, ½ and ™",
    "👍🏽 👩‍👩‍👧 🏳️‍🌈",
    "zero\u{200b}width",
    "[CLS] [SEP] <s> </s> [MASK]",
    "query: a web server",
    "passage: a web server",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
];

/// A text that most models cut.
const LONG: (&str, usize) = ("the quick brown fox jumps over the lazy dog while the server answers. ", 200);

/// How far the vectors of two servers lie apart.
#[derive(Debug, PartialEq)]
struct Difference {
    /// the smallest of the cosines between both vectors of a text
    cosine: f64,
    /// the text that has it
    text: usize,
    /// the largest difference between two numbers
    absolute: f64,
    /// of the nearest texts in the first server's vectors, the part that the second's vectors find there, too
    overlap: f64,
}

pub(super) fn verify(arguments: &Arguments, urls: &[String], printer: Printer) -> Result<Exit, Exit> {
    let texts = texts(arguments, printer)?;
    let keys = keys(arguments, printer)?;
    let mut answers = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        let key = keys.get(index).or(keys.first().filter(|_| keys.len() == 1)).map(String::as_str);
        let answer = EmbeddingsClient::new(url, key).and_then(|client| client.embed(&texts));
        let failed = |error: String| printer.fail("VerifyError", &format!("{url}: {error}"), Exit::Failed);
        answers.push(answer.map_err(failed)?);
    }
    let [first, second] = answers.as_slice() else { return Ok(Exit::Done) };
    let widths = [first, second].map(|answer| answer.vectors.first().map_or(0, Vec::len));
    if widths[0] != widths[1] {
        let message = format!("vectors of {} and {} numbers cannot lie in one index", widths[0], widths[1]);
        return Err(printer.fail("VerifyError", &message, Exit::Failed));
    }
    let difference = Difference::between(&first.vectors, &second.vectors);
    Ok(report(arguments, urls, &texts, [first, second], &difference, printer))
}

/// The texts of golden cases, where a pipeline is named, and those that are built in.
fn texts(arguments: &Arguments, printer: Printer) -> Result<Vec<String>, Exit> {
    let mut texts = Vec::new();
    if arguments.pipeline.is_named() {
        let pipeline = arguments.pipeline.open(&arguments.load, printer).map_err(|error| printer.error(&error))?;
        let requests = known_requests(&pipeline).map_err(|error| printer.error(&error))?;
        let values = requests.into_iter().take(arguments.samples).flat_map(|(_, request)| request);
        texts.extend(values.filter_map(|(_, value)| match value {
            Value::Text(text) if !text.is_empty() => Some(text.to_string()),
            _ => None,
        }));
    }
    texts.extend(TEXTS.iter().map(|text| (*text).to_owned()));
    texts.push(LONG.0.repeat(LONG.1));
    Ok(texts)
}

fn keys(arguments: &Arguments, printer: Printer) -> Result<Vec<String>, Exit> {
    let read = |name: &String| {
        let missing = || printer.fail("UsageError", &format!("there is no variable `{name}` with a key"), Exit::Usage);
        std::env::var(name).ok().filter(|key| !key.is_empty()).ok_or_else(missing)
    };
    if arguments.key_variable.len() > 2 {
        return Err(printer.fail(
            "UsageError",
            "there are two servers: give --key-variable at most twice",
            Exit::Usage,
        ));
    }
    arguments.key_variable.iter().map(read).collect()
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { dot(one, other) / lengths } else { 0.0 }
}

/// The numbers of the nearest vectors, other than its own.
fn nearest(query: &[f64], own: usize, index: &[Vec<f64>]) -> Vec<usize> {
    let mut all: Vec<_> = (0..index.len()).filter(|number| *number != own).collect();
    let cosines: Vec<_> = index.iter().map(|vector| cosine(query, vector)).collect();
    all.sort_by(|one, other| cosines[*other].total_cmp(&cosines[*one]));
    all.truncate(NEIGHBOURS);
    all
}

impl Difference {
    fn between(first: &[Vec<f64>], second: &[Vec<f64>]) -> Self {
        let mut difference = Self { cosine: f64::INFINITY, text: 0, absolute: 0.0, overlap: 0.0 };
        let (mut found, mut all) = (0, 0);
        for (text, (one, other)) in first.iter().zip(second).enumerate() {
            let cosine = cosine(one, other);
            if cosine < difference.cosine {
                (difference.cosine, difference.text) = (cosine, text);
            }
            let largest = one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
            difference.absolute = difference.absolute.max(largest);
            let (right, given) = (nearest(one, text, first), nearest(other, text, first));
            all += right.len();
            found += right.iter().filter(|number| given.contains(number)).count();
        }
        difference.overlap = found as f64 / all.max(1) as f64;
        difference
    }
}

fn report(
    arguments: &Arguments,
    urls: &[String],
    texts: &[String],
    answers: [&Embeddings; 2],
    difference: &Difference,
    printer: Printer,
) -> Exit {
    let Difference { cosine, text, absolute, overlap } = difference;
    let same = *cosine >= arguments.cosine;
    let farthest: String = texts.get(*text).map(|text| text.chars().take(60).collect()).unwrap_or_default();
    let is_equal = answers[0].space.is_some() && answers[0].space == answers[1].space;
    let text = if printer.json {
        let server = |(url, answer): (&String, &Embeddings)| json!({ "url": url, "space": answer.space, "numerics": answer.numerics });
        pretty(&json!({
            "same": same,
            "servers": urls.iter().zip(answers).map(server).collect::<Vec<_>>(),
            "equal_space": is_equal,
            "texts": texts.len(),
            "cosine": cosine,
            "accepted_cosine": arguments.cosine,
            "farthest": farthest,
            "absolute": absolute,
            "overlap": overlap,
        }))
    } else {
        let said = |said: &Option<String>| said.clone().unwrap_or_else(|| "not said".to_owned());
        let server =
            |(url, answer): (&String, &Embeddings)| vec![url.clone(), said(&answer.space), said(&answer.numerics)];
        let servers = table(&["server", "space", "numerics"], &[], urls.iter().zip(answers).map(server));
        let numbers = vec![
            texts.len().to_string(),
            format!("{cosine:.6}"),
            format!("{absolute:.2e}"),
            format!("{:.1} %", overlap * 100.0),
        ];
        let heading = ["texts", "smallest cosine", "largest difference", "same among the nearest 10"];
        let numbers = table(&heading, &[0, 1, 2, 3], [numbers]);
        let spaces = if is_equal { "equal" } else { "not known to be equal" };
        let verdict = if same { "one index" } else { "NOT one index" };
        format!(
            "{servers}\n\n{numbers}\n\n{verdict}: spaces {spaces}; of {}, the smallest cosine ({farthest:?}) is {} {}",
            pluralize(texts.len(), "text"),
            if same { "at least" } else { "less than" },
            arguments.cosine,
        )
    };
    match save_or_print(printer, None, &text) {
        Exit::Done if !same => Exit::Failed,
        exit => exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_angles_numbers_and_neighbours() {
        let first: Vec<_> = (0..30).map(|index| vec![f64::from(index).cos(), f64::from(index).sin()]).collect();
        let same = Difference::between(&first, &first);
        assert!(same.cosine > 1.0 - 1e-12 && same.absolute == 0.0, "{same:?}");
        assert!((same.overlap - 1.0).abs() < 1e-12, "{same:?}");

        let mut second = first.clone();
        second[7] = vec![-first[7][0], -first[7][1]];
        let other = Difference::between(&first, &second);
        assert_eq!(other.text, 7);
        assert!((other.cosine + 1.0).abs() < 1e-12 && (other.absolute - 2.0 * first[7][0].abs()).abs() < 1e-12);
        assert!((other.overlap - 29.0 / 30.0).abs() < 1e-12, "{other:?}");
    }
}
