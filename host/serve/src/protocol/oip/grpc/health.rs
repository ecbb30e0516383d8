//! gRPC's health service: the server as "", and each pipeline by its name.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::protocol::oip::grpc::proto::grpc_inference_service_server::SERVICE_NAME;
use crate::{PipelineState, Server};

/// Polling interval of `Watch`.
const EVERY: Duration = Duration::from_millis(500);

pub(super) struct Health {
    server: Arc<Server>,
}

impl Health {
    pub(super) const fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

/// The status of a service; `None` if the name is unknown.
fn state(server: &Server, name: &str) -> Option<ServingStatus> {
    let serving = |yes| if yes { ServingStatus::Serving } else { ServingStatus::NotServing };
    if name.is_empty() || name == SERVICE_NAME {
        return Some(serving(server.is_ready()));
    }
    let slots = server.repository().visible();
    match slots.iter().find(|slot| slot.name() == name) {
        Some(slot) => Some(serving(slot.state() == PipelineState::Ready)),
        None => (!server.repository().knows_all_names()).then_some(ServingStatus::NotServing),
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let name = &request.get_ref().service;
        let unknown = || Status::not_found(format!("there is no `{name}`"));
        state(&self.server, name).map(|state| Response::new(answer(state))).ok_or_else(unknown)
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Sends the status now and after each change, until the server stops.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (server, name) = (self.server.clone(), request.into_inner().service);
        let states = stream::unfold(None::<ServingStatus>, move |last| {
            let (server, name) = (server.clone(), name.clone());
            let mut stopping = server.stopping();
            async move {
                loop {
                    let now = state(&server, &name).unwrap_or(ServingStatus::ServiceUnknown);
                    if last != Some(now) {
                        return Some((Ok(answer(now)), Some(now)));
                    }
                    if *stopping.borrow_and_update() {
                        return None;
                    }
                    let _ = tokio::time::timeout(EVERY, stopping.changed()).await;
                }
            }
        });
        Ok(Response::new(states.boxed()))
    }
}
