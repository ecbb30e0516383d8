//! The calls of the service, except inference.

use std::sync::Arc;

use futures_util::stream;
use tonic::{Request, Response, Status, Streaming};

use super::status::status;
use super::{contents, descriptions, settings};
use crate::protocol::oip::grpc::proto;
use crate::protocol::oip::grpc::proto::grpc_inference_service_server::GrpcInferenceService;
use crate::protocol::oip::grpc::proto::{ModelInferResponse, ModelStreamInferResponse};
use crate::protocol::oip::lookup;
use crate::protocol::oip::lookup::Model;
use crate::protocol::oip::metadata::TensorMetadata;
use crate::protocol::oip::statistics::Statistics;
use crate::protocol::oip::{datatype, metadata, repository, shared_memory};
use crate::{ServeError, Server};

pub(super) struct Service {
    server: Arc<Server>,
}

impl Service {
    pub(super) const fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

fn plain<T>(result: Result<T, ServeError>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| status(&error))
}

/// Unreachable: inference calls have routes of their own, which decode and encode messages during the execution.
fn elsewhere() -> Status {
    Status::internal("an inference came where none is taken")
}

fn tensors(tensors: Vec<TensorMetadata>) -> Vec<proto::model_metadata_response::TensorMetadata> {
    let one = |tensor: TensorMetadata| proto::model_metadata_response::TensorMetadata {
        datatype: datatype::name(tensor.element).to_owned(),
        name: tensor.name,
        shape: tensor.shape,
    };
    tensors.into_iter().map(one).collect()
}

/// The model's name in a repository call: KServe has it in the field that Triton uses for the repository.
fn in_repository(repository_name: String, model_name: String) -> String {
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
            Ok(model) => Ok(model.loaded.crash().is_none()),
            // A missing model is not ready: clients poll before it is loaded.
            Err(ServeError::NotReady(_) | ServeError::LoadFailed { .. } | ServeError::NotFound(_)) => Ok(false),
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
            parameters: contents::text_parameters(metadata::space_parameters(&model.loaded)),
        }))
    }

    async fn model_infer(&self, _: Request<proto::ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        Err(elsewhere())
    }

    type ModelStreamInferStream = stream::Empty<Result<ModelStreamInferResponse, Status>>;

    async fn model_stream_infer(
        &self,
        _: Request<Streaming<proto::ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        Err(elsewhere())
    }

    async fn model_config(
        &self,
        request: Request<proto::ModelConfigRequest>,
    ) -> Result<Response<proto::ModelConfigResponse>, Status> {
        let proto::ModelConfigRequest { name, version } = request.into_inner();
        let model = lookup::of_message(&self.server, &name, &version);
        plain(model.map(|model| proto::ModelConfigResponse { config: Some(descriptions::model_config(&model)) }))
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
        plain(models.map(|models| Statistics::new(&models).into()))
    }

    async fn repository_index(
        &self,
        request: Request<proto::RepositoryIndexRequest>,
    ) -> Result<Response<proto::RepositoryIndexResponse>, Status> {
        plain(Ok(repository::index(&self.server, request.get_ref().ready).into()))
    }

    async fn repository_model_load(
        &self,
        request: Request<proto::RepositoryModelLoadRequest>,
    ) -> Result<Response<proto::RepositoryModelLoadResponse>, Status> {
        let proto::RepositoryModelLoadRequest { repository_name, model_name, parameters } = request.into_inner();
        let loaded = match repository::reject_config_override(parameters.keys()) {
            Ok(()) => repository::load(&self.server, in_repository(repository_name, model_name)).await,
            Err(error) => Err(error),
        };
        plain(loaded.map(|()| proto::RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<proto::RepositoryModelUnloadRequest>,
    ) -> Result<Response<proto::RepositoryModelUnloadResponse>, Status> {
        let request = request.into_inner();
        let name = in_repository(request.repository_name, request.model_name);
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
