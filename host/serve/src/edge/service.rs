//! The service in front of every protocol: request IDs, authentication, limits, traces, the access log and metrics.

use super::{access_log, cors, cross_site, drain_body, error_response, request_id, response_budget, root_path};
use crate::protocol::route::{self, is_grpc};
use gpux_config::LoadError;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Version};
use tower::{Layer as _, Service as _};
use tower_http::cors::CorsLayer;

use super::access_log::{LogFields, RecordedBody, ResponseRecord};
use super::drain_body::RequestBody;
use super::forwarded::Forwarded;
use super::host_check::HostCheck;
use super::host_check::{Peer, Sender};

use super::authentication::{Authentication, authorize};
use super::telemetry::Telemetry;
use crate::engine::error::ServeError;
use crate::engine::metrics::{ProtocolLabel, RejectionReason};
use crate::engine::request_context::RequestContext;
use crate::engine::server::Server;
use crate::engine::tenant::{Tenant, TenantPermit};
use crate::protocol::router::Routes;

/// Extension of a request that has both `Transfer-Encoding` and `Content-Length`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmbiguousLength;

/// The number of texts that were too long, so that a step left out a part.
const TRUNCATED: HeaderName = HeaderName::from_static("x-gpux-truncated");

/// Handles every request, whatever its protocol. Each connection has its own copy: reference counts shared by all
/// connections would move between CPU cores with each request.
#[derive(Clone)]
pub(crate) struct EdgeService {
    server: Arc<Server>,
    routes: Arc<Routes>,
    cors: Option<Arc<CorsLayer>>,
    hosts: Arc<HostCheck>,
    access: Arc<Authentication>,
    telemetry: Option<Arc<Telemetry>>,
}

impl EdgeService {
    pub(crate) fn new(server: &Arc<Server>, access: Arc<Authentication>, telemetry: Option<Arc<Telemetry>>) -> Self {
        let cors = cors::layer(&server.settings().cors).map(Arc::new);
        let hosts = Arc::new(HostCheck::new(server.settings()));
        Self { server: server.clone(), routes: Arc::new(Routes::new(server)), cors, hosts, access, telemetry }
    }

    /// Creates the service without traces and reads the keys.
    pub(crate) fn without_telemetry(server: &Arc<Server>) -> Result<Self, LoadError> {
        let access = Authentication::new(server);
        access.load()?;
        Ok(Self::new(server, Arc::new(access), None))
    }

    /// Records a request whose head hyper rejected: no service saw it.
    pub(crate) fn note_refused_head(&self, error: &(dyn Error + 'static), peer: Peer) {
        if let Some(status) = error.downcast_ref().and_then(refused_head) {
            access_log::note_unread(&self.server, status, peer);
        }
    }

    /// The routes without authentication, limits and logging.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Answers a request that came from `peer`; `None` if it came over no connection.
    pub(crate) async fn answer<B: RequestBody>(self: &Arc<Self>, request: Request<B>, peer: Option<Peer>) -> Response {
        let (request, unread) = drain_body::lend(request);
        let response = self.pass(request, peer).await;
        if let Some(body) = unread.body() {
            Box::pin(drain_body::drain(body)).await;
        }
        response
    }

    /// Fails if the length of the request is ambiguous, if it is for another server, or if it is a forbidden cross-site
    /// request. Applies to every protocol and key.
    fn check_site(&self, head: &Parts, peer: Option<Peer>) -> Result<(), ServeError> {
        if head.extensions.get::<AmbiguousLength>().is_some() {
            return Err(ServeError::invalid("the request has both `Transfer-Encoding` and `Content-Length`"));
        }
        peer.map_or(Ok(()), |peer| self.hosts.check(head, peer))?;
        cross_site::check(head, &self.server.settings().cors)
    }

    /// The tenant that sent the request; `None` if no key is needed.
    fn authenticate(&self, head: &Parts, sender: Option<Sender>) -> Result<Option<Arc<Tenant>>, ServeError> {
        self.access.authenticate(head, sender.map(Sender::ip)).inspect_err(|error| {
            if matches!(error, ServeError::TooMany { .. }) {
                self.server.metrics().none().note_rejection(RejectionReason::Guesses);
            }
        })
    }

    /// Applies the rights and the limits of the request's tenant.
    fn admit(&self, head: &Parts, tenant: &Arc<Tenant>) -> Result<TenantPermit, ServeError> {
        authorize(tenant, head)?;
        let permit = tenant.begin_request();
        Ok(permit.inspect_err(|exceeded| self.server.metrics().none().note_rejection(exceeded.into()))?)
    }

    /// Delays the response to a wrong key, until the server stops.
    async fn hold_back(&self, wait: Duration) {
        if !wait.is_zero() {
            let mut stopping = self.server.stopping();
            let _ = tokio::time::timeout(wait, stopping.wait_for(|stopping| *stopping)).await;
        }
    }

    async fn pass(self: &Arc<Self>, request: Request<Body>, peer: Option<Peer>) -> Response {
        let (server, started) = (&self.server, Instant::now());
        let (mut head, body) = request.into_parts();

        // Trusted proxies say from whom it comes; the checks of hosts and pages are about the connection itself.
        let forwarded = peer.map(|peer| Forwarded::read(&server.settings().trusted_proxies, peer, &head.headers));
        let forwarded = forwarded.unwrap_or_default();
        let sender = peer.map(|peer| forwarded.sender(peer));

        // `--root-path` goes before anything reads the path.
        root_path::remove(&mut head.uri, &server.settings().root_path);
        let protocol = protocol(&head);
        let id = request_id::from_headers(&head.headers);
        let version = head.version;

        // Framing, host and CSRF hold for every key, so they are checked before it.
        let misplaced = self.check_site(&head, peer).err();
        // Browsers send preflight requests without a key.
        let preflight = misplaced.is_none() && self.cors.is_some() && cors::is_preflight(&head);
        let cors = self.cors.as_ref().filter(|_| misplaced.is_none());

        // Authentication, then the rights and limits of the tenant.
        let tenant = match misplaced {
            Some(error) => Err(error),
            None if preflight => Ok(None),
            None => self.authenticate(&head, sender),
        };
        let known = tenant.as_ref().ok().cloned().flatten();
        let admitted = tenant.and_then(|tenant| tenant.map(|tenant| self.admit(&head, &tenant)).transpose());

        // With keys required, unauthenticated requests leave no traces: clients without a key may send any number.
        let may_leave = |permit: &Option<TenantPermit>| permit.is_some() || server.settings().keys.is_none();
        let telemetry = self.telemetry.as_ref().filter(|_| admitted.as_ref().is_ok_and(may_leave));
        let is_https = forwarded.is_https.unwrap_or_else(|| server.settings().tls.is_some());
        let span = telemetry.map(|telemetry| telemetry.begin(&head, is_https, sender));
        let steps = telemetry.zip(span.as_ref()).and_then(|(telemetry, span)| telemetry.steps(span));

        // A large head counts against the budget until its request is answered.
        let (permit, refused) = match admitted {
            Ok(permit) => (permit, None),
            Err(error) => (None, Some(error)),
        };
        let (refused, _head) = match response_budget::reserve_request_head(&head, server) {
            Ok(share) => (refused, share),
            Err(error) => (refused.or(Some(error)), None),
        };

        // Handlers read the tenant's permit, the client and the span from the context.
        let context = Arc::new(
            RequestContext::new(id.to_str().unwrap_or_default(), permit, steps)
                .sent_from(sender.map(Sender::ip))
                .shown_under(forwarded.prefix),
        );
        // Dropped with the response, or with this future if the client leaves: then it counts, logs and ends the span.
        let line = server.settings().access_log.then(|| LogFields::new(&head, sender, peer, known));
        let mut answered = ResponseRecord::new(server, context.clone(), protocol, started, line, span);

        // The routes, within the context; whatever was refused above is answered in the words of its protocol.
        let request = Request::from_parts(head, body);
        let answer = async |request| match &refused {
            Some(error) => {
                if let ServeError::UnknownKey(wait) = error {
                    self.hold_back(*wait).await;
                }
                context.within(|| error_response::answer(error, protocol))
            }
            None => context.clone().scope(self.routes.answer(request)).await,
        };

        // CORS lies around both, so that pages can read errors, too.
        let mut response = match cors {
            Some(cors) if preflight || request.method() != Method::OPTIONS => {
                let answer = tower::service_fn(async |request| Ok::<_, Infallible>(answer(request).await));
                let Ok(response) = Box::pin(cors.layer(answer).call(request)).await;
                response
            }
            _ => answer(request).await,
        };

        // Large responses count against a budget of their own.
        response = response_budget::charge_response(response, server, &context, protocol);

        // Headers of every response.
        let headers = response.headers_mut();
        headers.insert(request_id::HEADER, id);
        if context.truncated() > 0 {
            headers.insert(TRUNCATED, HeaderValue::from(context.truncated()));
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(X_FRAME_OPTIONS).or_insert(HeaderValue::from_static("DENY"));
        headers.entry(REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
        if version <= Version::HTTP_11 && server.is_closing() {
            // Clients then send no further request on a connection that is about to close.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }

        answered.head(&response);
        if protocol == ProtocolLabel::Grpc && !answered.is_complete() {
            // The status follows the body, and a stream lasts as long as its body is read.
            return response.map(|body| Body::new(RecordedBody::new(body, answered)));
        }
        response
    }
}

/// The status with which hyper answers a head that it cannot parse.
fn refused_head(error: &hyper::Error) -> Option<u16> {
    if error.is_parse_too_large() {
        // Only the message tells the two apart.
        return Some(if error.to_string().contains("URI") { 414 } else { 431 });
    }
    (error.is_parse() && !error.is_parse_version_h2()).then_some(400)
}

fn protocol(head: &Parts) -> ProtocolLabel {
    // A gRPC content type on an HTTP path gets that path's protocol.
    if is_grpc(&head.headers) && route::find(head.uri.path()).is_none_or(|route| route.is_call) {
        ProtocolLabel::Grpc
    } else {
        ProtocolLabel::of_path(head.uri.path())
    }
}

#[cfg(test)]
mod tests;
