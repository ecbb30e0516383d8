//! A healthy step that works on the same machine, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpux_core::{Context, OptionOrigin, Registry, Step as _, Value};
use gpux_sandbox::{ComponentConfig, ComponentStep, Sandbox};
use serde_json::json;

use crate::root;

/// center-ink, and a photo of a digit.
pub struct Neighbour {
    step: ComponentStep,
    photo: Value,
}

impl Neighbour {
    pub fn new(sandbox: &Sandbox, registry: &Registry) -> Self {
        let component = std::fs::read(root().join("guest-examples/rust/center-ink.wasm")).unwrap();
        let step = sandbox.load(&component, ComponentConfig::default(), &Arc::default()).unwrap();
        let file = std::fs::read(root().join("models/samples/eight-small.png")).unwrap();
        let decode =
            (registry.builtin("decode-image").unwrap().build)(json!({"channels": "gray"}), &OptionOrigin::Component);
        let photo = decode.unwrap().run(vec![Some(file.into())], &mut Context::default()).unwrap().remove(0);
        Self { step, photo }
    }

    /// One request; how long it took.
    pub fn request(&self) -> Duration {
        let begin = Instant::now();
        self.step.run(vec![Some(self.photo.clone())], &mut Context::default()).unwrap();
        begin.elapsed()
    }

    /// Works from before `work` until after it; how long each request took, the shortest first.
    pub fn beside(&self, work: impl FnOnce()) -> Vec<Duration> {
        let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut times = std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                let mut times = vec![self.request()];
                begun.store(true, Ordering::SeqCst);
                while !done.load(Ordering::SeqCst) {
                    times.push(self.request());
                }
                times
            });
            while !begun.load(Ordering::SeqCst) && !working.is_finished() {
                std::thread::yield_now();
            }
            work();
            done.store(true, Ordering::SeqCst);
            working.join().unwrap()
        });
        times.sort_unstable();
        times
    }
}
