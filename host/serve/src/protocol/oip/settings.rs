//! The extensions `logging` and `trace`: the settings in Triton's names. Only the operator sets them; clients can read
//! them.

use serde_json::{Map, Value as Json, json};

use super::lookup;
use crate::{ServeError, Server, Settings};

/// Settings by name.
pub(super) type SettingsMap = Map<String, Json>;

/// Log settings. An empty file means standard error.
pub(super) fn logging(settings: &Settings) -> SettingsMap {
    to_settings_map(&json!({
        "log_file": "",
        "log_info": true,
        "log_warning": true,
        "log_error": true,
        "log_verbose_level": u32::from(settings.access_log),
        "log_format": "default",
    }))
}

/// Trace settings: all requests are traced if a collector is configured, else none.
pub(super) fn tracing(server: &Server, model: &str) -> Result<SettingsMap, ServeError> {
    if !model.is_empty() {
        lookup::model(server, model, "")?;
    }
    let (level, rate, mode) = match server.settings().otlp {
        Some(_) => ("TIMESTAMPS", "1", "opentelemetry"),
        None => ("OFF", "1000", "triton"),
    };
    Ok(to_settings_map(&json!({
        "trace_level": [level],
        "trace_rate": rate,
        "trace_count": "-1",
        "log_frequency": "0",
        "trace_file": "",
        "trace_mode": mode,
    })))
}

fn to_settings_map(settings: &Json) -> SettingsMap {
    settings.as_object().cloned().unwrap_or_default()
}

/// Returns the settings; fails if the client would change one. `null` requests the initial value, which is the current
/// one.
pub(super) fn updated(settings: SettingsMap, asked: &SettingsMap) -> Result<SettingsMap, ServeError> {
    match asked.iter().find(|(name, value)| !value.is_null() && settings.get(*name) != Some(*value)) {
        None => Ok(settings),
        Some((name, _)) => {
            let known: Vec<_> = settings.keys().map(String::as_str).collect();
            let message = if settings.contains_key(name) {
                format!("`{name}` cannot be changed: settings are the operator's, and fixed when the server starts")
            } else {
                format!("there is no setting `{name}`, but {}", known.join(", "))
            };
            Err(ServeError::invalid(message))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Otlp;
    use gpux::LoadOptions;

    #[test]
    fn settings_are_read_only() {
        let quiet = logging(&Settings::default());
        assert_eq!(quiet["log_verbose_level"], 0);
        assert_eq!(logging(&Settings { access_log: true, ..Settings::default() })["log_verbose_level"], 1);
        let same = to_settings_map(&json!({ "log_info": true, "log_file": null }));
        assert_eq!(updated(quiet.clone(), &same).unwrap(), quiet);
        for (name, why) in [("log_info", "fixed when the server starts"), ("log", "no setting `log`")] {
            let refused = updated(quiet.clone(), &to_settings_map(&json!({ name: false }))).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let traced = |otlp: Option<&str>| {
            let otlp = otlp.map(|endpoint| Otlp { endpoint: endpoint.to_owned(), must: true });
            let settings = Settings { otlp, ..Settings::default() };
            tracing(&Server::new(settings, LoadOptions::default()), "").unwrap()["trace_level"].clone()
        };
        assert_eq!((traced(None), traced(Some("http://there"))), (json!(["OFF"]), json!(["TIMESTAMPS"])));
    }
}
