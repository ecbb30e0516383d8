//! A step that attacks what it is granted of WASI. Its input says how: a word, then what it is
//! about. It gives back what came of it.

#[cfg(feature = "all")]
mod files;

use self::exports::gpux::pipeline::step::{Description, Guest, Kind, Port, Signature};
use self::gpux::pipeline::types::{Error, NamedValue, Value};

#[cfg(feature = "all")]
wit_bindgen::generate!({ path: ["../../wit", "wit"], world: "gpux:hostile-wasi/all", generate_all });
#[cfg(feature = "print-only")]
wit_bindgen::generate!({ path: ["../../wit", "wit"], world: "gpux:hostile-wasi/print-only", generate_all });
#[cfg(feature = "network")]
wit_bindgen::generate!({ path: ["../../wit", "wit"], world: "gpux:hostile-wasi/network", generate_all });

struct Hostile;

fn port(name: &str) -> Port {
    Port { name: name.into(), kind: Kind::Text, optional: false, description: String::new() }
}

impl Guest for Hostile {
    fn describe() -> Description {
        Description {
            summary: "attacks what it is granted of WASI".into(),
            options_schema: r#"{"type":"object"}"#.into(),
        }
    }

    fn configure(_: String) -> Result<Signature, Error> {
        Ok(Signature { inputs: vec![port("attack")], outputs: vec![port("outcome")] })
    }

    fn process(inputs: Vec<NamedValue>) -> Result<Vec<NamedValue>, Error> {
        let attack = inputs.into_iter().find_map(|input| match input.value {
            Value::Text(text) => Some(text),
            _ => None,
        });
        let attack = attack.unwrap_or_default();
        let (word, about) = attack.split_once(' ').unwrap_or((&attack, ""));
        let outcome = strike(word, about).ok_or(Error::InvalidInput(format!("no attack `{attack}`")))?;
        Ok(vec![NamedValue { name: "outcome".into(), value: Value::Text(outcome) }])
    }
}

#[cfg(feature = "network")]
fn strike(_: &str, _: &str) -> Option<String> {
    wasi::sockets::instance_network::instance_network();
    None
}

#[cfg(feature = "print-only")]
fn strike(_: &str, about: &str) -> Option<String> {
    let stdout = wasi::cli::stdout::get_stdout();
    stdout.blocking_write_and_flush(about.as_bytes()).ok()?;
    Some(format!("{:?}", wasi::cli::environment::get_environment()))
}

#[cfg(feature = "all")]
fn strike(word: &str, about: &str) -> Option<String> {
    use std::mem::forget;

    use self::wasi::cli::{environment, exit, stderr, stdin, stdout};
    use self::wasi::clocks::{monotonic_clock, wall_clock};
    use self::wasi::io::poll::poll;
    use self::wasi::random::{insecure_seed, random};

    const FAR: u64 = u64::MAX;
    let number = || about.parse::<u64>().unwrap_or_default();
    Some(match word {
        "rest" => "rested".into(),
        "sleep" => {
            let begin = monotonic_clock::now();
            monotonic_clock::subscribe_duration(number() * 1_000_000).block();
            format!("slept {}", monotonic_clock::now() - begin >= number() * 1_000_000)
        }
        "sleep-for-ever" => {
            monotonic_clock::subscribe_instant(FAR).block();
            "woke".into()
        }
        "poll-nothing" => format!("{:?}", poll(&[])),
        "poll-never" => {
            let never = [monotonic_clock::subscribe_duration(FAR), monotonic_clock::subscribe_instant(FAR)];
            format!("{:?}", poll(&[&never[0], &never[1]]))
        }
        "poll-first" => {
            let (soon, never) = (monotonic_clock::subscribe_duration(1000), monotonic_clock::subscribe_duration(FAR));
            format!("{:?} {}", poll(&[&never, &soon]), never.ready())
        }
        "poll-spin" => loop {
            poll(&[&monotonic_clock::subscribe_duration(0)]);
        },
        "hoard-pollables" => loop {
            forget(monotonic_clock::subscribe_duration(FAR));
        },
        "hoard-streams" => loop {
            forget(stdout::get_stdout());
        },
        "hoard-folders" => loop {
            forget(self::wasi::filesystem::preopens::get_directories());
        },
        "year" => (1970 + wall_clock::now().seconds / 31_556_952).to_string(),
        "random" => {
            let drawn = random::get_random_bytes(number());
            let distinct = random::get_random_u64() != insecure_seed::insecure_seed().0;
            format!("{} {distinct}", drawn.len())
        }
        "environment" => format!("{:?}", environment::get_environment()),
        "arguments" => format!("{:?} {:?}", environment::get_arguments(), environment::initial_cwd()),
        "input" => format!("{:?}", stdin::get_stdin().blocking_read(10).map_err(|error| error.to_string())),
        "exit" => {
            exit::exit(if about == "well" { Ok(()) } else { Err(()) });
            "still here".into()
        }
        "print" => {
            stdout::get_stdout().blocking_write_and_flush(about.as_bytes()).ok()?;
            stderr::get_stderr().write(b"and this\n").ok()?;
            "printed".into()
        }
        "print-for-ever" => {
            let stdout = stdout::get_stdout();
            loop {
                stdout.write(&[b'x'; 1000]).ok()?;
                stdout.write(b"\n").ok()?;
            }
        }
        "zeros-for-ever" => {
            let stdout = stdout::get_stdout();
            loop {
                stdout.blocking_write_zeroes_and_flush(FAR).ok()?;
            }
        }
        _ => return files::strike(word, about),
    })
}

export!(Hostile);
