//! Requests that run a pipeline: most of all there are, so they go straight to it. A router would copy and box
//! each a few times, and keep the parts of its path in a map.

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};

use super::predict;
use crate::oip;
use crate::server::Server;

/// What a path asks to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// `/predict`
    Only,
    /// `/pipelines/NAME/predict`
    Named(String),
    /// `/v2/models/NAME/infer`, with an empty version, and `/v2/models/NAME/versions/VERSION/infer`
    Infer(String, String),
}

impl Run {
    /// What the request runs, if it does. One that is written in another way than most (`%2D`) is the router's.
    pub(super) fn of(request: &Request<Body>) -> Option<Self> {
        if request.method() != Method::POST {
            return None;
        }
        let path = request.uri().path();
        if path == "/predict" {
            return Some(Self::Only);
        }
        if let Some(rest) = path.strip_prefix("/pipelines/") {
            return rest.strip_suffix("/predict").and_then(plain).map(Self::Named);
        }
        let rest = path.strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
        match rest.split_once("/versions/") {
            Some((model, version)) => Some(Self::Infer(plain(model)?, plain(version)?)),
            None => Some(Self::Infer(plain(rest)?, String::new())),
        }
    }

    pub(super) async fn answer(self, server: &Server, request: Request<Body>) -> Response {
        match self {
            Self::Only => predict::respond(server, server.repository().only("predict"), request).await,
            Self::Named(name) => predict::respond(server, server.repository().get(&name), request).await,
            Self::Infer(model, version) => oip::answer_infer(server, &model, &version, request).await,
        }
    }
}

/// One part of a path that stands for itself.
fn plain(part: &str) -> Option<String> {
    let is_plain = !part.is_empty() && !part.contains(['/', '%']);
    is_plain.then(|| part.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use http::header::CONTENT_LENGTH;
    use http_body_util::BodyExt as _;
    use tower::Service as _;

    use super::*;
    use crate::http::Routes;
    use crate::{Settings, Source};
    use gpux::LoadOptions;

    fn to(path: &str) -> Request<Body> {
        Request::post(path).body(Body::from("{}")).unwrap()
    }

    #[test]
    fn what_runs_a_pipeline_is_told_by_its_path() {
        let infer = |version: &str| Some(Run::Infer("m.x".to_owned(), version.to_owned()));
        for (path, run) in [
            ("/predict", Some(Run::Only)),
            ("/predict?timeout=1", Some(Run::Only)),
            ("/predict/", None),
            ("/pipelines/digits/predict", Some(Run::Named("digits".to_owned()))),
            ("/pipelines//predict", None),
            ("/pipelines/predict", None),
            ("/pipelines/a/b/predict", None),
            ("/pipelines/a%2Db/predict", None),
            ("/pipelines/digits/info", None),
            ("/v2/models/m.x/infer", infer("")),
            ("/v2/models/m.x/versions/3/infer", infer("3")),
            ("/v2/models/m.x/versions//infer", None),
            ("/v2/models/versions/3/infer", None),
            ("/v2/models/m.x/generate", None),
        ] {
            assert_eq!(Run::of(&to(path)), run, "{path}");
        }
        assert_eq!(Run::of(&Request::get("/predict").body(Body::empty()).unwrap()), None);
    }

    /// Status, headers and body; hyper says how long the body is where nobody has.
    async fn told(response: Response) -> (http::StatusCode, http::HeaderMap, bytes::Bytes) {
        let (mut head, body) = response.into_parts();
        head.headers.remove(CONTENT_LENGTH);
        (head.status, head.headers, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn the_router_would_answer_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpux.yml");
        let pipeline = "name: m\nversion: 3.0.0\ninputs:\n  x: { type: float32, shape: [2] }\npipeline: [softmax]\n";
        std::fs::write(&path, pipeline).unwrap();
        let server = Arc::new(Server::new(Settings::default(), LoadOptions::default()));
        server.add(&[Source(path.display().to_string())]).unwrap();
        let routes = Routes::new(&server);
        let (plain, tensor) = (r#"{"x":[1,2]}"#, r#"{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}"#);
        let tensors = format!(r#"{{"inputs":[{tensor}]}}"#);
        for (path, body, status) in [
            ("/predict", plain, 200),
            ("/predict", "[", 400),
            ("/pipelines/m/predict", plain, 200),
            ("/pipelines/n/predict", plain, 404),
            ("/v2/models/m/infer", &tensors, 200),
            ("/v2/models/n/infer", &tensors, 404),
            ("/v2/models/m/versions/3/infer", &tensors, 200),
            ("/v2/models/m/versions/4/infer", &tensors, 404),
        ] {
            assert!(Run::of(&to(path)).is_some(), "{path}");
            let request = || Request::post(path).body(Body::from(body.to_owned())).unwrap();
            let Ok(routed) = routes.router.clone().call(request()).await;
            let straight = told(routes.answer(request()).await).await;
            assert_eq!((straight.0.as_u16(), &straight), (status, &told(routed).await), "{path}");
        }
        let encoded = Request::post("/pipelines/%6D/predict").body(Body::from(plain)).unwrap();
        assert_eq!(Run::of(&encoded), None);
        assert_eq!(routes.answer(encoded).await.status(), 200);
    }
}
