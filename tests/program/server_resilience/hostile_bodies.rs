//! Bodies that are made to hurt: each is answered with an error, at a bounded cost, and the next one as
//! ever.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{ONE, SCORES, Server};
use crate::digits::root;

const JSON: &str = "content-type: application/json";
const INFER: &str = "/v2/models/matrix/infer";

/// The memory that the server takes, in MiB.
fn memory(server: &Server) -> f64 {
    server.metric("process_resident_memory_bytes ") / 1_048_576.0
}

#[test]
fn bounds_memory_of_hostile_json() {
    let server = Server::start(&[SCORES, "tests/oip/models/matrix", "tests/oip/models/text"]);
    let before = memory(&server);
    let predict = "/pipelines/scores/predict";
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(5000), close.repeat(5000));
    let values = |value: &str, many: usize| vec![value; many].join(",");
    for (path, body, status, said) in [
        (predict, deep("[", "]"), 400, "recursion limit"),
        (predict, deep("{\"x\":", "}"), 400, ""),
        (INFER, format!("{{\"inputs\": {}}}", deep("[", "]")), 400, ""),
        (INFER, format!("{{\"inputs\": [], \"more\": {}}}", deep("{\"a\":", "}")), 400, "it is missing"),
        ("/v2/models/text/generate", format!("{{\"text\": {}}}", deep("[", "]")), 400, "recursion limit"),
        (predict, "{\"x\": [1, 2, 3, 4], \"x\": [1, 2, 3, 4]}".into(), 400, "duplicate field `x`"),
        (predict, format!("[{}]", values("{}", 20_000)), 400, "at most 10000 requests"),
        (predict, format!("[{{}}, {}]", values("1", 5_000_000)), 400, "more than 64 MiB"),
        (predict, "{\"x\": [1, 2, 3, 1e400]}".into(), 400, ""),
        (predict, "{\"x\": [1, 2, 3, NaNs]}".into(), 400, "not JSON"),
        (
            predict,
            "{\"x\": {\"type\": \"float32\", \"shape\": [9223372036854775807, 9], \"data\": [1]}}".into(),
            400,
            "",
        ),
        (
            INFER,
            "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[4294967296,4294967296],\"data\":[]}]}"
                .into(),
            400,
            "too large",
        ),
        (INFER, "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1e30],\"data\":[]}]}".into(), 400, ""),
        (
            INFER,
            format!(
                "{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[{}],\"data\":[1]}}]}}",
                values("1", 100_000)
            ),
            400,
            "at most 64 axes",
        ),
        (
            INFER,
            format!(
                "{{\"inputs\":[{{\"data\":[{}],\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1]}}]}}",
                values("1", 5_000_000)
            ),
            400,
            "more than 64 MiB",
        ),
    ] {
        let answer = server.post(path, JSON, &body);
        assert_eq!(answer.status, status, "{path} {body:.60}: {:.200}", answer.text());
        assert!(answer.text().contains(said), "{path} {body:.60}: {:.200}", answer.text());
        assert!(answer.body.len() < 16 << 10, "{path} {body:.60}: an answer of {} bytes", answer.body.len());
    }
    assert!(memory(&server) < before + 700.0, "{before} MiB, then {}", memory(&server));
    assert_eq!(server.post(predict, "", ONE).status, 200);
}

/// A pipeline that takes tensors of any shape, and one that takes any JSON.
fn takers(folder: &Path) -> [String; 2] {
    let scale = "inputs: { x: { type: float32 } }\npipeline: [{ scale: { factor: 2 } }]\n";
    let template = "inputs: { x: { type: json } }\npipeline: [{ json-template: { template: { all: \"{{x}}\" } } }]\n";
    [("any", scale), ("tree", template)].map(|(name, rest)| {
        let file = folder.join(format!("{name}.yml"));
        std::fs::write(&file, format!("name: {name}\nversion: 1.0.0\n{rest}")).unwrap();
        file.to_str().unwrap().to_owned()
    })
}

/// Four mebibytes of this value, in a list.
fn many(value: &str) -> String {
    format!("[{value}{}]", format!(",{value}").repeat((4 << 20) / (value.len() + 1) - 1))
}

#[test]
fn rejects_json_that_would_expand_to_gigabytes() {
    let folder = tempfile::tempdir().unwrap();
    let [any, tree] = takers(folder.path());
    let server = Server::start(&[&any, &tree, SCORES, "tests/oip/models/text"]);
    let before = memory(&server);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    for value in ["[]", "{}", "[1]", "{\"a\":1}", "1,[]", &deep] {
        let list = many(value);
        let field = format!("{{\"x\":{list}}}");
        let oip = |fields: &str| format!("{{\"inputs\":[{{{fields},\"shape\":[1]}}]}}");
        for (path, body) in [
            ("/pipelines/any/predict", field.clone()),
            ("/pipelines/any/predict", format!("{{\"x\":{{\"data\":{list}}}}}")),
            ("/pipelines/any/predict", format!("{{\"x\":{{\"data\":[1],\"shape\":{list}}}}}")),
            ("/pipelines/tree/predict", field.clone()),
            ("/pipelines/tree/predict", list.clone()),
            ("/pipelines/scores/predict", field.clone()),
            ("/pipelines/scores/predict", list.clone()),
            ("/v2/models/tree/generate", field),
            ("/v2/models/text/generate", format!("{{\"text\":{list}}}")),
            ("/v2/models/any/infer", oip(&format!("\"data\":{list},\"name\":\"x\",\"datatype\":\"FP32\""))),
            ("/v2/models/any/infer", oip(&format!("\"name\":\"x\",\"datatype\":\"FP32\",\"data\":{list}"))),
            ("/v2/models/any/infer", format!("{{\"inputs\":[],\"parameters\":{{\"timeout\":{list}}}}}")),
            ("/v2/models/any/infer", format!("{{\"inputs\":{list}}}")),
            ("/v2/models/any/infer", format!("{{\"inputs\":[],\"outputs\":{list}}}")),
        ] {
            // A list of lists of one number is a tensor, if nothing says otherwise.
            let status = if path == "/pipelines/any/predict" && body.starts_with("{\"x\":[[1],") { 200 } else { 400 };
            let answer = server.post(path, JSON, &body);
            assert_eq!(answer.status, status, "{path} {body:.60}: {:.200}", answer.text());
        }
    }
    let input = "{\"name\":\"x\",\"datatype\":\"BYTES\",\"shape\":[9999999],\"data\":[]}";
    let refused = server.post("/v2/models/any/infer", JSON, &format!("{{\"inputs\":{}}}", many(input)));
    assert!(refused.text().contains("more than 4096 inputs"), "{:.200}", refused.text());
    let repeated = "{\"inputs\":[{\"datatype\":\"BYTES\",\"data\":[],\"data\":[]}]}";
    assert!(server.post("/v2/models/any/infer", JSON, repeated).text().contains("duplicate field `data`"));
    // The allocator keeps some of their memory.
    assert!(memory(&server) < before + 400.0, "{before} MiB, then {}", memory(&server));
    assert_eq!(server.post("/pipelines/scores/predict", "", ONE).status, 200);
}

#[test]
fn rejects_tensors_of_thousands_of_axes() {
    let folder = tempfile::tempdir().unwrap();
    let [any, _] = takers(folder.path());
    let server = Server::start(&[&any]);
    let explicit = |axes: usize, data: &str| {
        let shape = vec!["1"; axes].join(",");
        server.post(
            "/predict",
            JSON,
            &format!("{{\"x\":{{\"type\":\"float32\",\"shape\":[{shape}],\"data\":{data}}}}}"),
        )
    };
    for data in ["[1]", "\"AACAPw==\""] {
        assert_eq!(explicit(64, data).status, 200);
        for axes in [65, 20_000] {
            let answer = explicit(axes, data);
            assert_eq!(answer.status, 400, "{:.200}", answer.text());
            assert!(answer.text().contains(&format!("at most 64 axes, not {axes}")), "{:.200}", answer.text());
        }
    }
    for data in ["\"data\":[1]", "\"parameters\":{\"binary_data_size\":0}"] {
        let shape = vec!["1"; 2_000_000].join(",");
        let input = format!("{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[{shape}],{data}}}");
        let answer = server.post("/v2/models/any/infer", JSON, &format!("{{\"inputs\":[{input}]}}"));
        assert!(answer.text().contains("at most 64 axes"), "{:.200}", answer.text());
    }
}

#[test]
fn bounds_results_of_request_lists() {
    let folder = tempfile::tempdir().unwrap();
    let [any, _] = takers(folder.path());
    let server = Server::start(&[&any]);
    let list = |requests: usize| {
        let request = "{\"x\":{\"type\":\"float32\",\"shape\":[1048576,0],\"data\":\"\"}}";
        server.post("/predict", JSON, &format!("[{}]", vec![request; requests].join(",")))
    };
    assert_eq!(list(2).status, 200);
    let refused = list(1000);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("more than 256 MiB"), "{:.200}", refused.text());
}

#[test]
fn rejects_tensors_shorter_than_their_shape() {
    let server = Server::start(&[SCORES, "tests/oip/models/matrix", "tests/oip/models/text"]);
    let npy = |header: &str| {
        [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[0; 16]].concat()
    };
    let npy_of = |shape: &str| npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"));
    for file in [
        npy_of("(1000000000000, 4)"),
        npy_of("(4611686018427387904, 4)"),
        npy_of("(99999999999999999999999999,)"),
        npy_of(&format!("({})", "1, ".repeat(3000))),
        npy("{'descr': '<f4'"),
        npy(&"{".repeat(5000)),
        b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec(),
        b"\x93NUMPY".to_vec(),
    ] {
        let mut connection = server.connect();
        let answer =
            connection.send("POST", "/pipelines/scores/predict", &["content-type: application/x-npy"], &file).unwrap();
        assert_eq!(answer.status, 400, "{}: {answer:?}", String::from_utf8_lossy(&file));
    }
    let binary = |name: &str, tensor: &str, input: &str, data: &[u8]| {
        let head = format!(
            "{{\"inputs\":[{{\"name\":\"{tensor}\",{input},\"parameters\":{{\"binary_data_size\":{}}}}}]}}",
            data.len()
        );
        let length = format!("inference-header-content-length: {}", head.len());
        let body = [head.as_bytes(), data].concat();
        server.connect().send("POST", &format!("/v2/models/{name}/infer"), &[&length], &body).unwrap()
    };
    let text = |data: &[u8]| binary("text", "text", "\"datatype\":\"BYTES\",\"shape\":[1]", data).status;
    assert_eq!(text(b"\x01\0\0\0a"), 200);
    for data in [&b"\xff\xff\xff\xffa"[..], b"\x01\0\0\0a\xff\xff\xff\x7f", b"\x01\0", b"\x02\0\0\0a", b"", &[0; 12]] {
        assert_eq!(text(data), 400, "{data:?}");
    }
    for shape in ["[4611686018427387904,4]", "[0,9223372036854775807]", "[1,4]", "[]"] {
        assert_eq!(
            binary("matrix", "x", &format!("\"datatype\":\"FP32\",\"shape\":{shape}"), &[0; 12]).status,
            400,
            "{shape}"
        );
    }
    server.post("/pipelines/scores/predict", "", ONE);
}

#[test]
fn bounds_decompressed_bodies() {
    let server = Server::start(&[SCORES, "--max-body", "8MiB"]);
    let before = memory(&server);
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..1024 {
        bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    for headers in ["content-encoding: gzip", "content-encoding: gzip\r\ncontent-type: application/x-npy"] {
        let answer = server.connect().send("POST", "/predict", &[headers], &bomb).unwrap();
        assert_eq!(answer.status, 413, "{answer:?}");
    }
    let answer = server.connect().send("POST", "/predict", &["content-encoding: gzip, gzip"], &bomb).unwrap();
    assert!([400, 413, 415].contains(&answer.status), "{answer:?}");
    let half = &bomb[..bomb.len() / 2];
    assert!(
        [400, 413]
            .contains(&server.connect().send("POST", "/predict", &["content-encoding: gzip"], half).unwrap().status)
    );
    assert!(memory(&server) < before + 64.0, "{before} MiB, then {}", memory(&server));
    server.assert_alive();
}

#[test]
fn rejects_oversized_images_and_forms() {
    let server = Server::start(&["."]);
    let seven = std::fs::read(root().join("models/samples/seven.png")).unwrap();
    let ask = |body: &[u8], headers: &str| server.connect().send("POST", "/predict", &[headers], body).unwrap().status;
    let png = "content-type: image/png";
    assert_eq!(ask(&seven, png), 200);
    // Width and height follow the name of the first chunk; its checksum is not looked at by everybody.
    let mut vast = seven.clone();
    vast[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(ask(&vast, png), 400);
    assert_eq!(ask(&seven[..seven.len() / 2], png), 400);
    let form = "content-type: multipart/form-data; boundary=b";
    let part = "--b\r\ncontent-disposition: form-data; name=image\r\n\r\n";
    for body in [
        [part.as_bytes(), &seven[..100]].concat(),
        format!("{part}x\r\n--b--\r\n").into_bytes(),
        format!("{}--b--\r\n", format!("{part}x\r\n").repeat(10_000)).into_bytes(),
        format!("--b\r\n{}\r\nx", "a: b\r\n".repeat(10_000)).into_bytes(),
        format!("--b\r\ncontent-disposition: form-data; name={}\r\n\r\nx\r\n--b--", "n".repeat(100_000)).into_bytes(),
        b"--b--\r\n".to_vec(),
        b"--".repeat(100_000),
    ] {
        let status = ask(&body, form);
        assert_eq!(status, 400, "{}", String::from_utf8_lossy(&body[..body.len().min(100)]));
    }
    assert_eq!(ask(&seven, png), 200);
}

#[test]
fn reads_no_more_form_fields_than_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let two = folder.path().join("two.yml");
    let inputs = "inputs: { a: { type: text }, b: { type: text, default: b } }";
    let step = "pipeline: [{ json-template: { template: { all: \"{{a}}{{b}}\" } } }]";
    std::fs::write(&two, format!("name: two\nversion: 1.0.0\n{inputs}\n{step}\n")).unwrap();
    let server = Server::start(&[two.to_str().unwrap()]);
    let field = |name: &str| format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\nx\r\n");
    let ask = |query: &str, body: &str| server.post(query, "content-type: multipart/form-data; boundary=b", body);
    let all = |names: &[&str], end: &str| format!("{}{end}", names.iter().map(|name| field(name)).collect::<String>());
    assert_eq!(ask("/predict", &all(&["a", "b"], "--b--\r\n")).status, 200);
    assert_eq!(ask("/predict", &all(&["b", "other"], "--b--\r\n")).status, 200, "it is what `a` was not");
    // What follows, which is no form, is not looked at.
    for (names, said) in [
        (&["a", "a"][..], "input `a`: the form gives it twice"),
        (&["b", "other", "a"], "input `a`: the form gives it twice"),
        (&["a", "b", "other"], "a field for each input already, and `other`"),
    ] {
        let answer = ask("/predict", &all(names, &"no form ".repeat(2000)));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.text().contains(said), "{}", answer.text());
    }
    // A request whose time is over before its turn has come is not read at all.
    let late = ask("/predict?timeout=1e-9", &all(&["a", "a"], &"no form ".repeat(2000)));
    assert_eq!(late.status, 504, "{late:?}");
}

#[test]
fn schedules_large_and_small_requests_alike() {
    let folder = tempfile::tempdir().unwrap();
    let [any, _] = takers(folder.path());
    let server = Server::start(&[&any]);
    let turns = || server.metric("gpux_queue_duration_seconds_count{pipeline=\"any\"");
    let request = |spaces: usize, timeout: &str| {
        format!(
            "{{\"inputs\":[{{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1]}}]{},\
             \"parameters\":{{\"timeout\":{timeout}}}}}",
            " ".repeat(spaces)
        )
    };
    for spaces in [0, 1 << 20] {
        let before = turns();
        let answer = server.post("/v2/models/any/infer", JSON, &request(spaces, "60000000"));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(turns(), before + 1.0, "{spaces}");
        let refused = server.post("/v2/models/any/infer", JSON, &request(spaces, "\"soon\""));
        assert!(refused.text().contains("the parameter `timeout` is"), "{refused:?}");
    }
    let late = server.post("/v2/models/any/infer", JSON, &request(1 << 20, "1"));
    assert_eq!(late.status, 503, "{late:?}");
}
