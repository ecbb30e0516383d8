//! gRPC calls through the router.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use tonic::client::Grpc;
use tonic::{Code, IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::ServiceExt as _;

use crate::protocol::oip::grpc::proto;
use crate::protocol::oip::grpc::proto::infer_parameter::ParameterChoice;
use crate::protocol::oip::grpc::proto::model_infer_request::InferInputTensor;
use crate::protocol::oip::grpc::proto::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse, ModelReadyRequest,
    ModelStatisticsRequest,
};
use crate::{PipelineSource, Server, Settings};
use gpux::{EngineChoice, LoadOptions};

/// A client of the service.
struct Client(Grpc<Router>);

macro_rules! client {
    ($($function:ident, $call:literal, $request:ident => $response:ident;)*) => {
        impl Client {
            fn new(router: Router) -> Self {
                Self(Grpc::new(router))
            }

            $(async fn $function(&mut self, request: impl IntoRequest<proto::$request>) -> Result<Response<proto::$response>, Status> {
                let path = http::uri::PathAndQuery::from_static(concat!("/inference.GRPCInferenceService/", $call));
                self.0.ready().await.unwrap();
                self.0.unary(request.into_request(), path, ProstCodec::default()).await
            })*

            async fn model_stream_infer(
                &mut self,
                requests: impl IntoStreamingRequest<Message = ModelInferRequest>,
            ) -> Result<Response<Streaming<proto::ModelStreamInferResponse>>, Status> {
                let path = http::uri::PathAndQuery::from_static("/inference.GRPCInferenceService/ModelStreamInfer");
                self.0.ready().await.unwrap();
                self.0.streaming(requests.into_streaming_request(), path, ProstCodec::default()).await
            }
        }
    };
}

client! {
    cuda_shared_memory_register, "CudaSharedMemoryRegister", CudaSharedMemoryRegisterRequest => CudaSharedMemoryRegisterResponse;
    cuda_shared_memory_unregister, "CudaSharedMemoryUnregister", CudaSharedMemoryUnregisterRequest => CudaSharedMemoryUnregisterResponse;
    log_settings, "LogSettings", LogSettingsRequest => LogSettingsResponse;
    model_infer, "ModelInfer", ModelInferRequest => ModelInferResponse;
    model_metadata, "ModelMetadata", ModelMetadataRequest => ModelMetadataResponse;
    model_ready, "ModelReady", ModelReadyRequest => ModelReadyResponse;
    model_statistics, "ModelStatistics", ModelStatisticsRequest => ModelStatisticsResponse;
    server_live, "ServerLive", ServerLiveRequest => ServerLiveResponse;
    system_shared_memory_status, "SystemSharedMemoryStatus", SystemSharedMemoryStatusRequest => SystemSharedMemoryStatusResponse;
    trace_setting, "TraceSetting", TraceSettingRequest => TraceSettingResponse;
}

fn embedded() -> LoadOptions {
    let mut load_options = LoadOptions::default();
    load_options.engine.choice = EngineChoice::Embedded;
    load_options
}

fn server() -> Arc<Server> {
    let server = Arc::new(Server::new(Settings { workers: 2, max_body: 64 << 10, ..Settings::default() }, embedded()));
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oip/models");
    server.add(&["matrix", "text"].map(|name| PipelineSource(format!("{models}/{name}")))).unwrap();
    server
}

fn router() -> Router {
    super::router(&server())
}

fn floats(contents: &[f32]) -> ModelInferRequest {
    let contents = InferTensorContents { fp32_contents: contents.to_vec(), ..InferTensorContents::default() };
    let input = InferInputTensor {
        name: "x".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 3],
        contents: Some(contents),
        ..InferInputTensor::default()
    };
    ModelInferRequest {
        model_name: "matrix".to_owned(),
        id: "7".to_owned(),
        inputs: vec![input],
        ..ModelInferRequest::default()
    }
}

/// The first element of the first output.
fn first(response: &ModelInferResponse) -> f32 {
    f32::from_le_bytes(response.raw_output_contents[0][..4].try_into().unwrap())
}

#[tokio::test]
async fn outputs_are_raw_by_default() {
    let mut client = Client::new(router());
    let response = client.model_infer(floats(&[1.0, 2.0, 3.0])).await.unwrap().into_inner();
    assert_eq!((response.id.as_str(), response.model_version.as_str()), ("7", "1"));
    assert_eq!((first(&response).to_bits(), response.outputs[0].contents.is_none()), (1.0_f32.to_bits(), true));
    let mut typed = floats(&[1.0, 2.0, 3.0]);
    let no = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(false)) };
    typed.parameters.insert("binary_data_output".to_owned(), no);
    let response = client.model_infer(typed).await.unwrap().into_inner();
    assert_eq!(response.outputs[0].contents.as_ref().unwrap().fp32_contents, [1.0, 2.0, 3.0]);
    assert!(response.raw_output_contents.is_empty());
    let mut raw = floats(&[]);
    raw.raw_input_contents = vec![vec![7_u8; 12].into()];
    let response = client.model_infer(raw.clone()).await.unwrap().into_inner();
    assert_eq!(response.raw_output_contents, [vec![7_u8; 12]]);
    raw.inputs[0].contents = floats(&[1.0]).inputs[0].contents.clone();
    assert_eq!(client.model_infer(raw).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn vectors_name_their_space() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sentence-embedding");
    let server = Arc::new(Server::new(Settings::default(), embedded()));
    server.add(&[PipelineSource(example.display().to_string())]).unwrap();
    let name = server.repository().visible()[0].name().to_owned();
    let mut client = Client::new(super::router(&server));

    let asked = proto::ModelMetadataRequest { name: name.clone(), version: String::new() };
    let metadata = client.model_metadata(asked).await.unwrap().into_inner();
    let text = InferInputTensor {
        name: metadata.inputs[0].name.clone(),
        datatype: "BYTES".to_owned(),
        shape: vec![1],
        contents: Some(InferTensorContents {
            bytes_contents: vec![b"a".to_vec().into()],
            ..InferTensorContents::default()
        }),
        ..InferInputTensor::default()
    };
    let request = ModelInferRequest { model_name: name, inputs: vec![text], ..ModelInferRequest::default() };
    let response = client.model_infer(request).await.unwrap().into_inner();
    assert_eq!(response.parameters, metadata.parameters);
    let text = |key: &str| match response.parameters[key].parameter_choice.as_ref().unwrap() {
        ParameterChoice::StringParam(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert!(text("space").len() == 64 && text("numerics").contains("gpux "));
    // No other pipeline has parameters.
    let response = Client::new(router()).model_infer(floats(&[1.0, 2.0, 3.0])).await.unwrap().into_inner();
    assert!(response.parameters.is_empty());
}

#[tokio::test]
async fn missing_models_are_not_ready() {
    let mut client = Client::new(router());
    for (name, version, ready) in
        [("matrix", "", true), ("matrix", "1", true), ("matrix", "9", false), ("no", "", false)]
    {
        let asked = ModelReadyRequest { name: name.to_owned(), version: version.to_owned() };
        assert_eq!(client.model_ready(asked).await.unwrap().into_inner().ready, ready, "{name} {version}");
    }
    for version in ["", "1", "1.2.0"] {
        let asked = ModelReadyRequest { name: "matrix".to_owned(), version: version.to_owned() };
        assert!(client.model_ready(asked).await.unwrap().into_inner().ready, "{version}");
    }
    let no_number = ModelReadyRequest { name: "matrix".to_owned(), version: "new".to_owned() };
    assert_eq!(client.model_ready(no_number).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn unloaded_models_are_not_found() {
    let server = server();
    let mut client = Client::new(super::router(&server));
    server.repository().lock_update("matrix").await.unwrap().unload();
    for version in ["", "1", "1.2.0", "new"] {
        let (name, version) = ("matrix".to_owned(), version.to_owned());
        let asked = ModelReadyRequest { name: name.clone(), version: version.clone() };
        assert!(!client.model_ready(asked).await.unwrap().into_inner().ready, "{version}");
        let asked = ModelInferRequest { model_name: name, model_version: version.clone(), ..floats(&[1.0]) };
        assert_eq!(client.model_infer(asked).await.unwrap_err().code(), Code::NotFound, "{version}");
    }
    let all = client.model_statistics(ModelStatisticsRequest::default()).await.unwrap().into_inner();
    let names: Vec<_> = all.model_stats.iter().map(|stats| stats.name.as_str()).collect();
    assert_eq!(names, ["text"]);
}

#[tokio::test]
async fn maps_errors_to_grpc_codes() {
    let mut client = Client::new(router());
    let unknown = ModelInferRequest { model_name: "nobody".to_owned(), ..ModelInferRequest::default() };
    assert_eq!(client.model_infer(unknown).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(client.model_infer(floats(&[1.0])).await.unwrap_err().code(), Code::InvalidArgument);
    let mut negative = floats(&[1.0, 2.0, 3.0]);
    negative.inputs[0].shape = vec![-1, 3];
    assert_eq!(client.model_infer(negative).await.unwrap_err().code(), Code::InvalidArgument);
    let mut large = floats(&[]);
    large.raw_input_contents = vec![vec![0_u8; 80 << 10].into()];
    assert_eq!(client.model_infer(large).await.unwrap_err().code(), Code::ResourceExhausted);
    let mut late = Request::new(floats(&[1.0, 2.0, 3.0]));
    late.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
    assert_eq!(client.model_infer(late).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn reports_shared_memory_and_settings() {
    use crate::protocol::oip::grpc::proto::{
        CudaSharedMemoryRegisterRequest, CudaSharedMemoryUnregisterRequest, LogSettingsRequest,
        SystemSharedMemoryStatusRequest, TraceSettingRequest, log_settings_request, trace_setting_request,
    };
    let mut client = Client::new(router());
    client.system_shared_memory_status(SystemSharedMemoryStatusRequest::default()).await.unwrap();
    let one = SystemSharedMemoryStatusRequest { name: "r".to_owned() };
    assert_eq!(client.system_shared_memory_status(one).await.unwrap_err().code(), Code::NotFound);
    client.cuda_shared_memory_unregister(CudaSharedMemoryUnregisterRequest::default()).await.unwrap();
    let refused = client.cuda_shared_memory_register(CudaSharedMemoryRegisterRequest::default()).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("not supported"), "{refused}");

    let logging = client.log_settings(LogSettingsRequest::default()).await.unwrap().into_inner();
    assert_eq!(logging.settings.len(), 6);
    let value = log_settings_request::SettingValue {
        parameter_choice: Some(log_settings_request::setting_value::ParameterChoice::BoolParam(false)),
    };
    let change = LogSettingsRequest { settings: [("log_info".to_owned(), value)].into() };
    assert_eq!(client.log_settings(change).await.unwrap_err().code(), Code::InvalidArgument);

    let options = |model: &str, level: &str| {
        let value = trace_setting_request::SettingValue { value: vec![level.to_owned()] };
        TraceSettingRequest { model_name: model.to_owned(), settings: [("trace_level".to_owned(), value)].into() }
    };
    let tracing = client.trace_setting(options("matrix", "OFF")).await.unwrap().into_inner();
    assert_eq!((&tracing.settings["trace_level"].value[0], tracing.settings.len()), (&"OFF".to_owned(), 6));
    assert_eq!(client.trace_setting(options("", "TIMESTAMPS")).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(client.trace_setting(options("no", "OFF")).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn stream_responds_in_order_and_survives_errors() {
    let mut client = Client::new(router());
    let requests = (0..30_u8).map(|number| {
        let mut request = floats(&[f32::from(number), 0.0, 0.0]);
        request.id = number.to_string();
        if number == 10 {
            request.model_name = "nobody".to_owned();
        }
        request
    });
    let mut answers = client.model_stream_infer(stream::iter(requests.collect::<Vec<_>>())).await.unwrap().into_inner();
    for number in 0..30_u8 {
        let answer = answers.message().await.unwrap().unwrap();
        let response = answer.infer_response.unwrap();
        assert_eq!(response.id, number.to_string());
        if number == 10 {
            assert!(answer.error_message.contains("nobody"));
        } else {
            assert_eq!(first(&response).to_bits(), f32::from(number).to_bits());
            // Clients that expect several responses per request look for this marker.
            let is_final = response.parameters["triton_final_response"].parameter_choice.as_ref().unwrap();
            assert_eq!(*is_final, ParameterChoice::BoolParam(true));
        }
    }
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn rejects_messages_with_too_many_parts() {
    for compressed in [false, true] {
        let mut client = Client::new(router());
        if compressed {
            client = Client(client.0.send_compressed(tonic::codec::CompressionEncoding::Gzip));
        }
        let many = ModelInferRequest { inputs: vec![InferInputTensor::default(); 5000], ..floats(&[]) };
        let refused = client.model_infer(many).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains("4096"), "{refused}");
    }
}

#[tokio::test]
async fn bounds_strings_of_all_inputs() {
    let input = |name: &str, strings: i64| InferInputTensor {
        name: name.to_owned(),
        datatype: "BYTES".to_owned(),
        shape: vec![strings],
        ..InferInputTensor::default()
    };
    let inputs = vec![input("text", 1), input("more", 4 << 20)];
    let raw_input_contents = vec![b"\x01\0\0\0a".as_slice().into(), Vec::new().into()];
    let many = ModelInferRequest { model_name: "text".to_owned(), inputs, raw_input_contents, ..Default::default() };
    let refused = Client::new(router()).model_infer(many).await.unwrap_err();
    assert!(refused.message().contains("at most 4194304 strings"), "{refused}");
}

#[tokio::test]
async fn reserves_memory_for_decoded_contents() {
    let settings = Settings { workers: 1, body_memory: 400 << 10, ..Settings::default() };
    let server = Arc::new(Server::new(settings, embedded()));
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oip/models/matrix");
    server.add(&[PipelineSource(model.to_owned())]).unwrap();
    let mut client = Client::new(super::router(&server));
    let _held = server.request_budget().for_request().reserve(300 << 10).unwrap();
    for (zeros, code) in [(1000, Code::InvalidArgument), (20_000, Code::Unavailable), (60_000, Code::ResourceExhausted)]
    {
        let mut many = floats(&[]);
        let contents = InferTensorContents { uint64_contents: vec![0; zeros], ..InferTensorContents::default() };
        many.inputs[0].contents = Some(contents);
        let refused = client.model_infer(many).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
}

#[tokio::test]
async fn truncates_long_quotes_in_messages() {
    let named = |length: usize| ModelInferRequest { model_name: "\u{f6}".repeat(length), ..Default::default() };
    let refused = Client::new(router()).model_infer(named(2049)).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("at most 4096 bytes"), "{refused}");
    let refused = Client::new(router()).model_infer(named(2048)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(refused.message().len() < 5000 && refused.message().ends_with('\u{2026}'));
}

#[tokio::test]
async fn silent_stream_ends_with_the_server() {
    let server = server();
    let mut client = Client::new(super::router(&server));
    let requests = stream::iter([floats(&[1.0, 2.0, 3.0]), floats(&[4.0, 5.0, 6.0])]).chain(stream::pending());
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    for expected in [1.0_f32, 4.0] {
        let answer = answers.message().await.unwrap().unwrap().infer_response.unwrap();
        assert_eq!(first(&answer).to_bits(), expected.to_bits());
    }
    server.stop();
    assert_eq!(answers.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn stream_ends_at_its_deadline() {
    let requests = stream::iter([floats(&[1.0, 2.0, 3.0])]).chain(stream::pending());
    let mut request = Request::new(requests);
    request.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
    let mut answers = Client::new(router()).model_stream_infer(request).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    assert_eq!(answers.message().await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn tolerates_garbage() {
    for body in [&b""[..], b"\0", b"\0\0\0\0\x05ab", b"\0\xff\xff\xff\xff", b"\x01\0\0\0\x01a", b"\0\0\0\0\x02\xff\xff"]
    {
        let call = http::Request::post("/inference.GRPCInferenceService/ModelInfer")
            .header(CONTENT_TYPE, "application/grpc")
            .body(axum::body::Body::from(body))
            .unwrap();
        let answer = router().oneshot(call).await.unwrap();
        assert_ne!(answer.headers().get("grpc-status").map(http::HeaderValue::as_bytes), Some(&b"0"[..]), "{body:?}");
    }
}

#[tokio::test]
async fn bounds_calls_other_than_inference() {
    use crate::protocol::oip::grpc::proto::{ServerLiveRequest, TraceSettingRequest, trace_setting_request};
    let value = trace_setting_request::SettingValue { value: vec![String::new(); 64 << 10] };
    let many = TraceSettingRequest { settings: [("trace_level".to_owned(), value)].into(), ..Default::default() };
    for compressed in [false, true] {
        let mut client =
            Client::new(super::router(&Arc::new(Server::new(Settings::default(), LoadOptions::default()))));
        if compressed {
            client = Client(client.0.send_compressed(tonic::codec::CompressionEncoding::Gzip));
        }
        let refused = client.trace_setting(many.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("65536 bytes"), "{refused}");
        client.server_live(ServerLiveRequest {}).await.unwrap();
    }
}

#[tokio::test]
async fn unary_calls_take_one_message() {
    for (call, message) in [("ServerLive", &[][..]), ("ModelInfer", &[0x0a, 1, b'x'])] {
        let message = [&[0, 0, 0, 0, message.len() as u8], message].concat();
        for (times, taken) in [(1, true), (2, false)] {
            let request = http::Request::post(format!("/inference.GRPCInferenceService/{call}"))
                .header(CONTENT_TYPE, "application/grpc")
                .body(axum::body::Body::from(message.repeat(times)))
                .unwrap();
            let answer = router().oneshot(request).await.unwrap();
            let refused = answer.headers().get("grpc-message").and_then(|message| message.to_str().ok());
            let refused = refused.is_some_and(|message| message.contains("one%20message"));
            assert_eq!(refused, !taken, "{call}: {:?}", answer.headers());
        }
    }
}

/// The head and the first bytes of the response to a message with these headers.
async fn answered(headers: &[(&'static str, &'static str)], message: &[u8]) -> (http::HeaderMap, Vec<u8>) {
    let mut request = http::Request::post("/inference.GRPCInferenceService/ModelInfer");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let framed = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
    let request = request.header(CONTENT_TYPE, "application/grpc").body(axum::body::Body::from(framed)).unwrap();
    let (head, body) = router().oneshot(request).await.unwrap().into_parts();
    (head.headers, axum::body::to_bytes(body, 1 << 20).await.unwrap().into())
}

#[tokio::test]
async fn compresses_responses_to_compressing_clients() {
    use prost::Message as _;
    use tonic::codec::CompressionEncoding::{Deflate, Gzip};

    let message = floats(&[1.0, 2.0, 3.0]).encode_to_vec();
    for (headers, compressed) in [
        (&[("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity, deflate, gzip")][..], Some("gzip")),
        (&[("grpc-encoding", "deflate"), ("grpc-accept-encoding", "deflate")], Some("deflate")),
        (&[("grpc-encoding", "deflate"), ("grpc-accept-encoding", "gzip")], None),
        (&[("grpc-encoding", "gzip")], None),
        (&[("grpc-accept-encoding", "identity,deflate,gzip")], None),
    ] {
        let (head, body) = answered(headers, &message).await;
        let said = head.get("grpc-encoding").map(|name| name.to_str().unwrap());
        assert_eq!((said, body[0]), (compressed, u8::from(compressed.is_some())), "{headers:?}");
        assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize, body.len() - 5, "{headers:?}");
    }
    for encoding in [Gzip, Deflate] {
        let mut client = Client(Grpc::new(router()).send_compressed(encoding).accept_compressed(encoding));
        let response = client.model_infer(floats(&[1.0, 2.0, 3.0])).await.unwrap().into_inner();
        assert_eq!(first(&response).to_bits(), 1.0_f32.to_bits());
        let requests = stream::iter([floats(&[4.0, 5.0, 6.0]), floats(&[7.0, 8.0, 9.0])]);
        let responses = client.model_stream_infer(requests).await.unwrap().into_inner();
        let firsts = responses.map(|response| first(&response.unwrap().infer_response.unwrap()));
        assert_eq!(firsts.collect::<Vec<_>>().await, [4.0, 7.0]);
    }
    let (head, _) = answered(&[("grpc-encoding", "zstd")], &message).await;
    assert_eq!(head["grpc-status"], "12");
    assert_eq!(head["grpc-accept-encoding"], "identity,gzip,deflate");
}
