//! The calls of the service.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tonic::{Request, Response, Status, Streaming};

use super::body::{Message, Stream};
use super::bounds::Head;
use super::proto::grpc_inference_service_server::GrpcInferenceService;
use super::proto::{self, InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use super::stream::{Ending, Requests};
use super::{infer, settings, timeout};
use crate::serve::oip::error::status;
use crate::serve::oip::lookup::{self, Model};
use crate::serve::oip::metadata::TensorMetadata;
use crate::serve::oip::statistics::Statistics;
use crate::serve::oip::{config, datatype, metadata, repository, shared_memory};
use crate::serve::{ServeError, Server};

pub(super) struct Service {
    server: Arc<Server>,
}

impl Service {
    pub(super) const fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

/// The answer, compressed only for those who compress themselves: all clients accept compression,
/// few want to pay for it.
fn answered<T>(compressed: bool, message: T) -> Response<T> {
    let mut response = Response::new(message);
    if !compressed {
        response.disable_compression();
    }
    response
}

fn is_compressed<T>(request: &Request<T>) -> bool {
    request.metadata().get("grpc-encoding").is_some_and(|encoding| encoding != "identity")
}

/// What was read of a call before it was called.
fn held<T, H: Clone + Send + Sync + 'static>(request: &Request<T>) -> Result<H, Status> {
    request.extensions().get().cloned().ok_or_else(|| Status::internal("the call was not read"))
}

fn plain<T>(result: Result<T, ServeError>) -> Result<Response<T>, Status> {
    result.map(|message| answered(false, message)).map_err(|error| status(&error))
}

/// One answer of a stream: an error is said in it, and the stream goes on.
async fn streamed(server: &Server, message: Bytes, deadline: Option<Instant>) -> ModelStreamInferResponse {
    let (id, infer) = match Head::read(&message) {
        Ok(head) => {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            (head.id.clone(), infer::infer(server, head, message, left).await)
        }
        Err(error) => (String::new(), Err(error)),
    };
    match infer {
        Ok(mut response) => {
            // Clients that wait for the last of several answers look for this; here the first is the last.
            let is_final = proto::infer_parameter::ParameterChoice::BoolParam(true);
            let is_final = InferParameter { parameter_choice: Some(is_final) };
            response.parameters.insert("triton_final_response".to_owned(), is_final);
            ModelStreamInferResponse { error_message: String::new(), infer_response: Some(response) }
        }
        Err(error) => ModelStreamInferResponse {
            error_message: error.told(),
            infer_response: Some(ModelInferResponse { id, ..ModelInferResponse::default() }),
        },
    }
}

fn tensors(tensors: Vec<TensorMetadata>) -> Vec<proto::model_metadata_response::TensorMetadata> {
    let one = |tensor: TensorMetadata| proto::model_metadata_response::TensorMetadata {
        datatype: datatype::name(tensor.element).to_owned(),
        name: tensor.name,
        shape: tensor.shape,
    };
    tensors.into_iter().map(one).collect()
}

/// The name in a repository's call: KServe's message holds it where Triton's has the repository.
fn named(repository_name: String, model_name: String) -> String {
    if model_name.is_empty() { repository_name } else { model_name }
}

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(
        &self,
        _: Request<proto::ServerLiveRequest>,
    ) -> Result<Response<proto::ServerLiveResponse>, Status> {
        plain(Ok(proto::ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<proto::ServerReadyRequest>,
    ) -> Result<Response<proto::ServerReadyResponse>, Status> {
        plain(Ok(proto::ServerReadyResponse { ready: self.server.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<proto::ModelReadyRequest>,
    ) -> Result<Response<proto::ModelReadyResponse>, Status> {
        let proto::ModelReadyRequest { name, version } = request.into_inner();
        let ready = match lookup::of_message(&self.server, &name, &version) {
            Ok(_) => Ok(true),
            // What is not there is not ready: clients ask before it is loaded.
            Err(ServeError::NotReady(_) | ServeError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        };
        plain(ready.map(|ready| proto::ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<proto::ServerMetadataRequest>,
    ) -> Result<Response<proto::ServerMetadataResponse>, Status> {
        plain(Ok(proto::ServerMetadataResponse {
            name: metadata::SERVER_NAME.to_owned(),
            version: metadata::SERVER_VERSION.to_owned(),
            extensions: metadata::EXTENSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<proto::ModelMetadataRequest>,
    ) -> Result<Response<proto::ModelMetadataResponse>, Status> {
        let proto::ModelMetadataRequest { name, version } = request.into_inner();
        plain(lookup::of_message(&self.server, &name, &version).map(|model| proto::ModelMetadataResponse {
            name,
            versions: metadata::versions(&model),
            platform: metadata::PLATFORM.to_owned(),
            inputs: tensors(metadata::inputs(&model)),
            outputs: tensors(metadata::outputs(&model)),
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        let (compressed, timeout) = (is_compressed(&request), timeout::of(request.metadata()));
        let Message(message) = held(&request)?;
        let infer = async { infer::infer(&self.server, Head::read(&message)?, message, timeout).await };
        infer.await.map(|response| answered(compressed, response)).map_err(|error| status(&error))
    }

    type ModelStreamInferStream =
        Pin<Box<dyn futures_util::Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    /// Runs the requests of a stream side by side, as many as there are workers, and gives their results
    /// in order.
    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let compressed = is_compressed(&request);
        let deadline = timeout::of(request.metadata()).and_then(|timeout| Instant::now().checked_add(timeout));
        let (server, ending) = (self.server.clone(), Ending::default());
        let at_once = server.settings().workers;
        let Stream(messages) = held(&request)?;
        let requests = Requests::new(messages, &server, deadline, ending.clone());
        let answers = requests.map(move |request| {
            let server = server.clone();
            async move { Ok(streamed(&server, request?, deadline).await) }
        });
        let last = stream::once(async move { ending.status() }).filter_map(|status| ready(status.map(Err)));
        Ok(answered(compressed, answers.buffered(at_once).chain(last).boxed()))
    }

    async fn model_config(
        &self,
        request: Request<proto::ModelConfigRequest>,
    ) -> Result<Response<proto::ModelConfigResponse>, Status> {
        let proto::ModelConfigRequest { name, version } = request.into_inner();
        let model = lookup::of_message(&self.server, &name, &version);
        plain(model.map(|model| proto::ModelConfigResponse { config: Some(config::to_message(&model)) }))
    }

    async fn model_statistics(
        &self,
        request: Request<proto::ModelStatisticsRequest>,
    ) -> Result<Response<proto::ModelStatisticsResponse>, Status> {
        let proto::ModelStatisticsRequest { name, version } = request.into_inner();
        let models = if name.is_empty() {
            Ok(Model::all(&self.server))
        } else {
            lookup::of_message(&self.server, &name, &version).map(|model| vec![model])
        };
        plain(models.map(|models| Statistics::of(&models).into()))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> Result<Response<proto::RepositoryIndexResponse>, Status> {
        plain(Ok(repository::index_message(&self.server, request.get_ref().ready)))
    }

    async fn repository_model_load(
        &self,
        request: Request<proto::RepositoryModelLoadRequest>,
    ) -> Result<Response<proto::RepositoryModelLoadResponse>, Status> {
        let proto::RepositoryModelLoadRequest { repository_name, model_name, parameters } = request.into_inner();
        let loaded = match repository::refuse_override(parameters.keys()) {
            Ok(()) => repository::load(&self.server, named(repository_name, model_name)).await,
            Err(error) => Err(error),
        };
        plain(loaded.map(|()| proto::RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<proto::RepositoryModelUnloadRequest>,
    ) -> Result<Response<proto::RepositoryModelUnloadResponse>, Status> {
        let request = request.into_inner();
        let name = named(request.repository_name, request.model_name);
        plain(repository::unload(&self.server, &name).await.map(|()| proto::RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<proto::SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<proto::SystemSharedMemoryStatusResponse>, Status> {
        plain(shared_memory::status(&request.get_ref().name).map(|()| proto::SystemSharedMemoryStatusResponse {}))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<proto::SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<proto::SystemSharedMemoryRegisterResponse>, Status> {
        plain(Err(shared_memory::register(&request.get_ref().name)))
    }

    async fn system_shared_memory_unregister(
        &self,
        _: Request<proto::SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<proto::SystemSharedMemoryUnregisterResponse>, Status> {
        plain(Ok(proto::SystemSharedMemoryUnregisterResponse {}))
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<proto::CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<proto::CudaSharedMemoryStatusResponse>, Status> {
        plain(shared_memory::status(&request.get_ref().name).map(|()| proto::CudaSharedMemoryStatusResponse {}))
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<proto::CudaSharedMemoryRegisterRequest>,
    ) -> Result<Response<proto::CudaSharedMemoryRegisterResponse>, Status> {
        plain(Err(shared_memory::register(&request.get_ref().name)))
    }

    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<proto::CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<proto::CudaSharedMemoryUnregisterResponse>, Status> {
        plain(Ok(proto::CudaSharedMemoryUnregisterResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<proto::TraceSettingRequest>,
    ) -> Result<Response<proto::TraceSettingResponse>, Status> {
        plain(settings::tracing(&self.server, request.into_inner()))
    }

    async fn log_settings(
        &self,
        request: Request<proto::LogSettingsRequest>,
    ) -> Result<Response<proto::LogSettingsResponse>, Status> {
        plain(settings::logging(&self.server, request.into_inner()))
    }
}
