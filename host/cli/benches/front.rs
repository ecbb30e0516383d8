//! What a request pays for what stands before every protocol (its name, its key, what is counted),
//! and for the times of its steps: beside the same without.
//!
//! Bar: 2 µs a request, keys aside.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and stops at the first surprise")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use gpux::{LoadOptions, Pipeline};
use gpux_core::{Context, Observer, PlannedStep, RunOptions, Tensor, Value};
use gpux_serve::{InMemoryServer, PipelineSource, Server, Settings};
use http::Request;

const TURNS: usize = 21;
const REQUESTS: usize = 5_000;
const PIPELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/pipelines/scores.yml");
const BODY: &str = "{\"x\": [1, 2, 3, 4]}";

fn server(settings: Settings) -> Arc<Server> {
    let server = Arc::new(Server::new(settings, LoadOptions::default()));
    server.add(&[PipelineSource(PIPELINE.to_owned())]).unwrap();
    server
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.yml");
    let others = (0..99).map(|number| format!("  - {{ name: other-{number}, key: key-of-another-{number} }}\n"));
    std::fs::write(&path, format!("keys:\n  - {{ name: me, key: my-own-long-key }}\n{}", others.collect::<String>()))
        .unwrap();
    let open = server(Settings::default());
    let guarded = server(Settings { keys: Some(path), ..Settings::default() });
    let ways = [
        ("without", InMemoryServer::new(&open).unwrap(), false),
        ("with", InMemoryServer::new(&open).unwrap(), true),
        ("with 100 keys", InMemoryServer::new(&guarded).unwrap(), true),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..TURNS {
        for ((_, server, front), times) in ways.iter().zip(&mut times) {
            times.push(runtime.block_on(turn(server, *front)));
        }
    }
    println!("POST /predict of four numbers, without a connection; medians of {TURNS} interleaved turns of {REQUESTS}");
    let medians: Vec<_> = times.iter_mut().map(|times| median(times)).collect();
    for ((name, ..), median) in ways.iter().zip(&medians) {
        let more = median.as_secs_f64() - medians[0].as_secs_f64();
        println!("{name:<16}{:>8.2} µs a request{:>+8.2} µs", median.as_secs_f64() * 1e6, more * 1e6);
    }
    clock();
}

async fn turn(server: &InMemoryServer, front: bool) -> Duration {
    let start = Instant::now();
    for _ in 0..REQUESTS {
        let request = Request::post("/predict").header("x-api-key", "my-own-long-key").body(Body::from(BODY)).unwrap();
        let response = server.answer(request, front).await;
        assert_eq!(response.status(), 200);
    }
    start.elapsed() / REQUESTS as u32
}

/// Looks at the clock as the server does.
struct Times([u64; 8]);

impl Observer for Times {
    fn after(&mut self, _: &PlannedStep, time: Duration, _: &[Value], _: &Context) {
        self.0[time.as_micros().min(7) as usize] += 1;
    }
}

/// The plan alone, watched and not.
fn clock() {
    let pipeline = Pipeline::open(PIPELINE, &LoadOptions::default()).unwrap();
    let x = Tensor::new([2, 2], vec![1_f32, 2.0, 3.0, 4.0]).unwrap();
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let mut times = Times([0; 8]);
        for (observed, all) in [(false, &mut alone), (true, &mut watched)] {
            let start = Instant::now();
            for _ in 0..REQUESTS {
                let observer = observed.then_some(&mut times as &mut dyn Observer);
                let options = RunOptions { observer, ..RunOptions::default() };
                pipeline.plan().run(vec![("x".to_owned(), x.clone().into())], options).unwrap();
            }
            all.push(start.elapsed() / REQUESTS as u32);
        }
    }
    let (alone, watched) = (median(&mut alone), median(&mut watched));
    let more = watched.as_secs_f64() - alone.as_secs_f64();
    println!("times of the steps, {} of them: {:+.2} µs a run", pipeline.plan().steps().len(), more * 1e6);
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
