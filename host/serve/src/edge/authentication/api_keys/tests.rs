#![allow(clippy::unwrap_used, reason = "tests")]

use futures_util::FutureExt as _;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

use super::*;
use crate::Priority;
use crate::engine::tenant::{LimitExceeded, Role};

const SECRET: &str = "0123456789abcdef0123";

fn keys(text: &str, before: Option<&ApiKeys>) -> Result<ApiKeys, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.yml");
    std::fs::write(&path, text).unwrap();
    let variables = Variables::of_operator(|name| match name {
        "GPUX_KEY" => Some(format!("{SECRET}\n")),
        "GPUX_DIGITS" => Some("00012345678901234567890".to_owned()),
        "GPUX_EMPTY" => Some(String::new()),
        "KEY" => Some("$another-long-secret".to_owned()),
        _ => None,
    });
    ApiKeys::load(&path, &variables, before).map_err(|error| error.to_string())
}

fn head(name: HeaderName, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
}

fn alice(rest: &str) -> String {
    let digest = gpux_core::files::digest(SECRET);
    format!("keys:\n  - name: alice\n    sha256: {digest}\n{rest}")
}

#[test]
fn accepts_keys_in_both_headers() {
    let keys = keys(&alice(""), None).unwrap();
    let api_key = HeaderName::from_static("x-api-key");
    for headers in [
        head(AUTHORIZATION, &format!("Bearer {SECRET}")),
        head(AUTHORIZATION, &format!("bearer  {SECRET}")),
        head(api_key.clone(), SECRET),
    ] {
        assert_eq!(keys.tenant(&headers).unwrap().name(), "alice");
    }
    for headers in [
        HeaderMap::new(),
        head(AUTHORIZATION, "Bearer "),
        head(AUTHORIZATION, &format!("Basic {SECRET}")),
        head(api_key, &format!("{SECRET}4")),
    ] {
        assert_eq!(keys.tenant(&headers).unwrap_err().status(), http::StatusCode::UNAUTHORIZED, "{headers:?}");
    }
}

#[test]
fn applies_rights_and_limits_of_a_key() {
    let text = alice("    pipelines: [digits]\n    priority: low\n    concurrency: 1\n    rate: 1\n    burst: 2\n");
    let keys = keys(&text, None).unwrap();
    let tenant = keys.tenants[0].1.clone();
    assert!(tenant.can_use("digits") && !tenant.can_use("other") && tenant.role() == Role::User);
    assert_eq!(tenant.priority(Priority::High), Priority::Low);
    let permit = tenant.begin_request().unwrap();
    assert_eq!(tenant.begin_request().unwrap_err(), LimitExceeded::Concurrency(1));
    drop(permit);
    drop(tenant.begin_request().unwrap());
    assert!(matches!(tenant.begin_request(), Err(LimitExceeded::Rate(_))));
    let left = |tenant: &Tenant| tenant.free_slots().unwrap();
    assert_eq!(left(&tenant), 1, "who is refused is not under way");
}

#[tokio::test]
async fn items_respect_the_concurrency_of_their_key() {
    let keys = keys(&alice("    concurrency: 2\n"), None).unwrap();
    let tenant = keys.tenants[0].1.clone();
    let request = tenant.begin_request().unwrap();
    let slots = tenant.slots().unwrap();
    let [own, other] = [slots.one().await.unwrap(), slots.one().await.unwrap()];
    assert_eq!(
        tenant.begin_request().unwrap_err(),
        LimitExceeded::Concurrency(2),
        "its items have taken what was left"
    );
    assert!(slots.one().now_or_never().is_none());
    drop(own);
    let own = slots.one().now_or_never().unwrap().unwrap();
    drop(other);
    drop(tenant.begin_request().unwrap());
    drop((request, own));
}

#[test]
fn reload_keeps_usage() {
    let text = alice("    rate: 1\n    burst: 1\n");
    let first = keys(&text, None).unwrap();
    first.tenants[0].1.take_token().unwrap();
    let second = keys(&text, Some(&first)).unwrap();
    assert!(second.tenants[0].1.take_token().is_err());
    let more_at_once = keys(&(text + "    concurrency: 2\n"), Some(&second)).unwrap();
    assert!(more_at_once.tenants[0].1.take_token().is_err(), "that is another limit");
    let under_way = more_at_once.tenants[0].1.take_slot();
    let other = keys(&alice("    rate: 2\n    concurrency: 2\n"), Some(&more_at_once)).unwrap();
    assert!(other.tenants[0].1.take_token().is_ok());
    assert_eq!(other.tenants[0].1.free_slots().unwrap(), 1);
    drop(under_way);
}

#[test]
fn revokes_changed_keys_for_running_streams() {
    let text = alice("    pipelines: [one]\n    rate: 5\n    concurrency: 2\n");
    let read = |text: &str, before: &ApiKeys| {
        let keys = keys(text, Some(before)).unwrap();
        keys.replace(before);
        keys
    };
    for other in ["keys: []\n".to_owned(), text.replace("[one]", "[]"), text.replace("rate: 5", "rate: 4")] {
        let first = keys(&text, None).unwrap();
        let tenant = first.tenants[0].1.clone();
        let second = read(&text, &first);
        assert!(!tenant.is_revoked());
        read(&other, &second);
        assert!(tenant.is_revoked(), "{other}");
    }
}

#[test]
fn reads_keys_from_the_environment() {
    let opened_by = |written: &str, key: &str| {
        let keys = keys(&format!("keys:\n  - name: a\n    key: {written}\n"), None).unwrap();
        let is_written = keys.warnings().iter().any(|warning| warning.contains("written in the file"));
        (keys.tenant(&head(AUTHORIZATION, &format!("Bearer {key}"))).is_ok(), is_written)
    };
    assert_eq!(opened_by("${GPUX_KEY}", SECRET), (true, false));
    assert_eq!(opened_by("'${GPUX_KEY}'", "${GPUX_KEY}"), (false, false), "the text itself is nobody's key");
    assert_eq!(opened_by("${KEY}", "$another-long-secret"), (true, false));
    assert_eq!(opened_by("${GPUX_NONE:-the-default-of-it}", "the-default-of-it"), (true, false));
    // A key of digits stays text.
    assert_eq!(opened_by("${GPUX_DIGITS}", "00012345678901234567890"), (true, false));
    assert_eq!(opened_by("a$$b-$c", "a$b-$c"), (true, true));
    for (written, wanted) in [
        ("${GPUX_NONE}", "`GPUX_NONE` is not set"),
        ("a${", "is not a variable"),
        ("${GPUX KEY}", "is not a variable"),
        ("${GPUX_EMPTY}", "either `sha256:` or `key:`"),
    ] {
        let message = keys(&format!("keys:\n  - name: a\n    key: {written}\n"), None).unwrap_err();
        assert!(message.contains(wanted) && !message.contains("secret"), "{written}: {message}");
    }
}

#[test]
fn reports_mistakes_in_the_file() {
    for (text, wanted) in [
        ("keys:\n  - name: a\n".to_owned(), "either `sha256:` or `key:`"),
        ("keys:\n  - {name: a, sha256: abc}\n".to_owned(), "64 hexadecimal digits"),
        ("keys:\n  - {name: a, key: secret, rates: 3}\n".to_owned(), "rates"),
        ("keys:\n  - {name: a, key: secret}\n  - {name: b, key: secret}\n".to_owned(), "this key is there already"),
        ("keys:\n  - {name: a, key: secret}\n  - {name: a, key: other}\n".to_owned(), "this name is there already"),
        ("keys:\n  - {name: a, key: secret, rate: 0}\n".to_owned(), "rate"),
        ("keys:\n  - {name: \"a\\e[31m\", key: secret}\n".to_owned(), "control characters"),
        ("keys:\n  - {name: a, key: secret, metrics: true, admin: true}\n".to_owned(), "reads metrics alone"),
        ("keys:\n  - {name: a, key: secret, metrics: true, pipelines: [b]}\n".to_owned(), "reads metrics alone"),
    ] {
        let message = keys(&text, None).unwrap_err();
        assert!(message.contains(wanted), "{text}: {message}");
        assert!(!message.contains("secret") || text.contains("rate"), "a key is not for a log: {message}");
    }
    let plain = keys("keys:\n  - {name: a, key: secret}\n", None).unwrap();
    assert!(plain.warnings().iter().any(|warning| warning.contains("sha256")), "{:?}", plain.warnings());
    assert!(plain.warnings().iter().all(|warning| !warning.contains("secret")));
}
