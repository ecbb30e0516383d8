//! What requests over the protocol came to, for the extension `statistics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::grpc::proto;
use super::lookup::{self, Model};
use crate::serve::{Ask, ServeError, Served, Server, Turn};

/// How often something was, and how long it took altogether.
#[derive(Default)]
struct Total {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Total {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.nanoseconds.load(Ordering::Relaxed))
    }

    fn to_json(&self) -> Json {
        let (count, ns) = self.get();
        json!({ "count": count, "ns": ns })
    }

    fn to_message(&self) -> proto::StatisticDuration {
        let (count, ns) = self.get();
        proto::StatisticDuration { count, ns }
    }
}

/// The counts of one pipeline, since it was loaded.
#[derive(Default)]
pub(in crate::serve) struct Statistics {
    success: Total,
    fail: Total,
    queue: Total,
    compute_input: Total,
    compute_infer: Total,
    compute_output: Total,
    /// milliseconds since 1970
    last_inference: AtomicU64,
}

/// The times of one request's turn.
pub(super) struct Laps {
    queued: Duration,
    start: Instant,
    read: Option<Instant>,
    inferred: Option<Instant>,
}

impl Laps {
    fn new(queued: Duration) -> Self {
        Self { queued, start: Instant::now(), read: None, inferred: None }
    }

    /// The inputs are values now.
    pub(super) fn read(&mut self) {
        self.read = Some(Instant::now());
    }

    /// The outputs are there.
    pub(super) fn inferred(&mut self) {
        self.inferred = Some(Instant::now());
    }
}

/// Runs `work` in a turn of the pipeline, and counts what comes of it.
pub(super) async fn counted<T: Send + 'static>(
    server: &Server,
    served: &Arc<Served>,
    ask: Ask,
    work: impl FnOnce(&Turn, &mut Laps) -> Result<T, ServeError> + Send + 'static,
) -> Result<T, ServeError> {
    let arrived = Instant::now();
    let timed = server.run(served, ask, |turn| {
        let mut laps = Laps::new(turn.queued());
        let result = work(turn, &mut laps)?;
        Ok((result, laps, Instant::now()))
    });
    let statistics = served.statistics();
    match timed.await {
        Ok((result, laps, end)) => {
            statistics.succeeded(arrived.elapsed(), &laps, end);
            Ok(result)
        }
        Err(error) => {
            statistics.fail.add(arrived.elapsed());
            Err(error)
        }
    }
}

impl Statistics {
    fn succeeded(&self, total: Duration, laps: &Laps, end: Instant) {
        let read = laps.read.unwrap_or(laps.start);
        let inferred = laps.inferred.unwrap_or(read);
        self.success.add(total);
        self.queue.add(laps.queued);
        self.compute_input.add(read.duration_since(laps.start));
        self.compute_infer.add(inferred.duration_since(read));
        self.compute_output.add(end.duration_since(inferred));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_inference.fetch_max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// One entry of `GET /v2/models/stats`. A request is one inference, whatever its batch's axis.
    fn to_json(&self, model: &Model) -> Json {
        let (inferences, _) = self.success.get();
        let (input, infer) = (self.compute_input.to_json(), self.compute_infer.to_json());
        let output = self.compute_output.to_json();
        let batch = json!({
            "batch_size": 1, "compute_input": input, "compute_infer": infer, "compute_output": output,
        });
        json!({
            "name": model.served.name(),
            "version": lookup::version_number(model.served.version()),
            "last_inference": self.last_inference.load(Ordering::Relaxed),
            "inference_count": inferences,
            "execution_count": inferences,
            "inference_stats": {
                "success": self.success.to_json(),
                "fail": self.fail.to_json(),
                "queue": self.queue.to_json(),
                "compute_input": input,
                "compute_infer": infer,
                "compute_output": output,
            },
            "batch_stats": if inferences == 0 { json!([]) } else { json!([batch]) },
        })
    }

    fn to_message(&self, model: &Model) -> proto::ModelStatistics {
        let (inferences, _) = self.success.get();
        let batch = proto::InferBatchStatistics {
            batch_size: 1,
            compute_input: Some(self.compute_input.to_message()),
            compute_infer: Some(self.compute_infer.to_message()),
            compute_output: Some(self.compute_output.to_message()),
        };
        proto::ModelStatistics {
            name: model.served.name().to_owned(),
            version: lookup::version_number(model.served.version()),
            last_inference: self.last_inference.load(Ordering::Relaxed),
            inference_count: inferences,
            execution_count: inferences,
            inference_stats: Some(proto::InferStatistics {
                success: Some(self.success.to_message()),
                fail: Some(self.fail.to_message()),
                queue: Some(self.queue.to_message()),
                compute_input: batch.compute_input,
                compute_infer: batch.compute_infer,
                compute_output: batch.compute_output,
            }),
            batch_stats: if inferences == 0 { Vec::new() } else { vec![batch] },
        }
    }
}

/// The pipelines whose counts are asked for: one, or all that are loaded.
fn models(server: &Server, name: &str, version: &str) -> Result<Vec<Model>, ServeError> {
    if !name.is_empty() {
        return Ok(vec![lookup::model(server, name, version)?]);
    }
    let entries = server.repository().visible();
    Ok(entries.iter().filter_map(|entry| lookup::model(server, entry.name(), "").ok()).collect())
}

/// `GET /v2/models/stats`, or of one pipeline.
pub(super) fn to_json(server: &Server, name: &str, version: &str) -> Result<Json, ServeError> {
    let models = models(server, name, version)?;
    let models: Vec<_> = models.iter().map(|model| model.served.statistics().to_json(model)).collect();
    Ok(json!({ "model_stats": models }))
}

/// The same in gRPC's message.
pub(super) fn to_message(
    server: &Server,
    name: &str,
    version: &str,
) -> Result<proto::ModelStatisticsResponse, ServeError> {
    let models = models(server, name, version)?;
    let model_stats = models.iter().map(|model| model.served.statistics().to_message(model)).collect();
    Ok(proto::ModelStatisticsResponse { model_stats })
}
