//! SIGKILL in the middle of what changes the store, and several commands that change it at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Home;
use crate::child::StartWithLimit as _;

/// How many commands are killed: some in the gate, more when asked for.
const KILLS: usize = 10;

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    /// One below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn killed_commands_leave_nothing_half_and_lose_nothing() {
    let kills = std::env::var("GPUX_STORE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let home = Home::new();
    let folders: Vec<_> = (0..4)
        .map(|number| {
            let folder = home.scaling(&format!("1.{number}.0"), f64::from(number) + 2.0);
            // Large enough that kills come while it is copied.
            std::fs::write(format!("{folder}/README.md"), format!("{number} of 4\n").repeat(1 << 18)).unwrap();
            folder
        })
        .collect();
    let digests: Vec<_> = folders.iter().map(|folder| home.json(&["store", "add", folder, "--json"])).collect();
    let bundle = home.path().join("bundle.tar").display().to_string();
    let bundles = folders.iter().map(|folder| {
        home.json(&["bundle", folder, "-o", &bundle, "--force", "--json"]);
        std::fs::read(&bundle).unwrap()
    });
    let bundles: Vec<_> = bundles.collect();
    let mut names: BTreeMap<_, _> = home.names().into_iter().collect();
    let mut numbers = Numbers(53);
    let mut took = BTreeMap::<&str, Duration>::new();
    for kill in 0..kills {
        let number = usize::try_from(numbers.below(4)).unwrap();
        let name = format!("name-{}", numbers.below(3));
        let kind = ["add", "add", "rm", "prune", "bundle", "run"][usize::try_from(numbers.below(6)).unwrap()];
        let arguments: &[&str] = match kind {
            "add" => &["store", "add", &folders[number], "--name", &name],
            "rm" => &["store", "rm", &name],
            "bundle" => &["bundle", &folders[number], "-o", &bundle, "--force"],
            "run" => &["run", &bundle, "--input", "x=[1, 2]"],
            _ => &["store", "prune"],
        };
        // The first of each kind is not killed, and says how long it takes.
        let begun = Instant::now();
        let mut child = home.gpux(arguments).start();
        if let Some(took) = took.get(kind) {
            let most = u64::try_from(took.as_micros()).unwrap() * 5 / 4;
            std::thread::sleep(Duration::from_micros(numbers.below(most + 1)));
            child.kill().unwrap();
        }
        child.wait().unwrap();
        took.entry(kind).or_insert(begun.elapsed());

        // Nothing half is kept, whoever looks first.
        let checked = home.run(&["store", "check", "--json"]);
        assert!(checked.status.success(), "kill {kill}, {arguments:?}: {checked:?}");
        // The bundle is whole, too: that of one folder or another.
        let read = std::fs::read(&bundle).unwrap();
        assert!(bundles.contains(&read), "kill {kill}, {arguments:?}");
        // Nothing else than what it was to do has changed, and that has changed as a whole.
        let now: BTreeMap<_, _> = home.names().into_iter().collect();
        let mut done = names.clone();
        match kind {
            "add" => drop(done.insert(name.clone(), digests[number]["digest"].as_str().unwrap().to_owned())),
            "rm" => drop(done.remove(&name)),
            _ => {}
        }
        assert!(now == names || now == done, "kill {kill}, {arguments:?}: {names:?} became {now:?}");
        names = now;
    }
    // Each name runs, and no room is lost.
    for name in names.keys() {
        home.json(&["run", name, "--input", "x=[1, 2]", "--json"]);
    }
    let names: Vec<_> = names.into_keys().collect();
    let rm: Vec<_> = ["store", "rm", "--json"].into_iter().chain(names.iter().map(String::as_str)).collect();
    home.json(&rm);
    home.json(&["store", "prune", "--json"]);
    for folder in ["blobs/sha256", "ingest", "pipelines"] {
        assert_eq!(home.store().join(folder).read_dir().unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn commands_at_once_take_nothing_from_each_other() {
    let home = Home::new();
    let rounds = std::env::var("GPUX_STORE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap()).div_ceil(2);
    let files: Vec<_> = (0..3)
        .map(|number| {
            let folder = home.scaling(&format!("1.{number}.0"), f64::from(number) + 2.0);
            let file = home.path().join(format!("{number}.tar")).display().to_string();
            home.json(&["bundle", &folder, "-o", &file, "--json"]);
            file
        })
        .collect();
    // Each bundle is run without a name, named, run by its name and forgotten, while all that no name needs goes.
    let pruned = || {
        for _ in 0..rounds * 2 {
            home.json(&["store", "prune", "--json"]);
        }
    };
    let used = |number: usize| {
        let (file, name) = (&files[number], format!("name-{number}"));
        let factor = json!(f64::from(u32::try_from(number).unwrap()) + 2.0);
        for _ in 0..rounds {
            let run =
                |pipeline: &str| home.json(&["run", pipeline, "--input", "x=[1, 2]", "--json"])["tensor"][0].clone();
            assert_eq!(run(file), factor);
            home.json(&["store", "add", file, "--name", &name, "--json"]);
            assert_eq!(run(&name), factor);
            home.json(&["store", "rm", &name, "--json"]);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(pruned);
        for number in 0..files.len() {
            let used = &used;
            scope.spawn(move || used(number));
        }
    });
    assert_eq!(home.names(), []);
    home.json(&["store", "check", "--json"]);
    home.json(&["store", "prune", "--json"]);
    for folder in ["blobs/sha256", "ingest", "pipelines"] {
        assert_eq!(home.store().join(folder).read_dir().unwrap().count(), 0, "{folder}");
    }
}
