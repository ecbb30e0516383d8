//! The settings of `logging` and `trace` in gRPC messages.

use serde_json::{Value as Json, json};

use crate::protocol::oip::grpc::proto;
use crate::protocol::oip::grpc::proto::{log_settings_request, log_settings_response, trace_setting_response};
use crate::protocol::oip::settings;
use crate::protocol::oip::settings::SettingsMap;
use crate::{ServeError, Server};

/// `LogSettings`: returns the settings; fails if the request would change one.
pub(super) fn logging(
    server: &Server,
    request: proto::LogSettingsRequest,
) -> Result<proto::LogSettingsResponse, ServeError> {
    use log_settings_request::setting_value::ParameterChoice as Given;
    use log_settings_response::setting_value::ParameterChoice;
    let given = |(name, value): (String, log_settings_request::SettingValue)| {
        let value = match value.parameter_choice {
            Some(Given::BoolParam(value)) => json!(value),
            Some(Given::Uint32Param(value)) => json!(value),
            Some(Given::StringParam(value)) => json!(value),
            None => Json::Null,
        };
        (name, value)
    };
    let asked: SettingsMap = request.settings.into_iter().map(given).collect();
    let settings = settings::updated(settings::logging(server.settings()), &asked)?;
    let value = |(name, value): (String, Json)| {
        let choice = match value {
            Json::Bool(value) => ParameterChoice::BoolParam(value),
            Json::String(text) => ParameterChoice::StringParam(text),
            other => {
                ParameterChoice::Uint32Param(other.as_u64().and_then(|number| number.try_into().ok()).unwrap_or(0))
            }
        };
        (name, log_settings_response::SettingValue { parameter_choice: Some(choice) })
    };
    Ok(proto::LogSettingsResponse { settings: settings.into_iter().map(value).collect() })
}

/// `TraceSetting` of the server or of a pipeline; fails if the request would change a setting.
pub(super) fn tracing(
    server: &Server,
    request: proto::TraceSettingRequest,
) -> Result<proto::TraceSettingResponse, ServeError> {
    let settings = settings::tracing(server, &request.model_name)?;
    let given = |(name, value): (String, proto::trace_setting_request::SettingValue)| {
        let is_list = settings.get(&name).is_some_and(Json::is_array);
        let value = match value.value.as_slice() {
            [] => Json::Null,
            [one] if !is_list => json!(one),
            many => json!(many),
        };
        (name, value)
    };
    let asked: SettingsMap = request.settings.into_iter().map(given).collect();
    let value = |(name, value): (String, Json)| {
        let texts = match value {
            Json::Array(texts) => texts,
            text => vec![text],
        };
        let value = texts.iter().filter_map(Json::as_str).map(str::to_owned).collect();
        (name, trace_setting_response::SettingValue { value })
    };
    let settings = settings::updated(settings.clone(), &asked)?.into_iter().map(value).collect();
    Ok(proto::TraceSettingResponse { settings })
}
