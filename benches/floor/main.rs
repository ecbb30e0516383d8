//! The floor: the server that somebody who knows axum and ort writes by hand in an afternoon, with
//! nothing that a server needs beside the work. No queue, no deadline, no limits, no batching.
//!
//! `cargo bench --bench floor -- PORT MODELS [SESSIONS]`, where MODELS holds identity.onnx, resnet18.onnx,
//! minilm6.onnx and tokenizer.json (`benches/serve/README.md`).

#![allow(clippy::unwrap_used, missing_docs, reason = "a program of the bench")]

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use fast_image_resize::images::Image;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use serde::{Deserialize, Serialize};
use tokenizers::{Tokenizer, TruncationParams};

const SIDE: usize = 224;
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// Sessions that requests take and give back.
struct Pool(ArrayQueue<Session>);

impl Pool {
    fn open(environment: &Environment, path: &Path, sessions: usize) -> Self {
        let pool = ArrayQueue::new(sessions);
        for _ in 0..sessions {
            let builder = Session::builder(environment).unwrap().with_intra_threads(1);
            assert!(pool.push(builder.unwrap().commit_from_file(path).unwrap()).is_ok());
        }
        Self(pool)
    }

    /// As many sessions as threads that may ask: there is always one.
    fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> T {
        let mut session = loop {
            match self.0.pop() {
                Some(session) => break session,
                None => std::thread::yield_now(),
            }
        };
        let result = work(&mut session);
        assert!(self.0.push(session).is_ok());
        result
    }
}

struct Models {
    identity: Pool,
    resnet: Pool,
    minilm: Pool,
    tokenizer: Tokenizer,
}

type Shared = State<Arc<Models>>;

/// An answer in JSON.
type Json = ([(HeaderName, &'static str); 1], Vec<u8>);

fn json(value: &impl Serialize) -> Json {
    ([(CONTENT_TYPE, "application/json")], serde_json::to_vec(value).unwrap())
}

#[derive(Deserialize)]
struct Rows {
    x: Vec<[f32; 16]>,
}

#[derive(Serialize)]
struct Same {
    y: Vec<[f32; 16]>,
}

async fn identity(State(models): Shared, body: Bytes) -> Json {
    let rows: Rows = serde_json::from_slice(&body).unwrap();
    let count = rows.x.len();
    let y = models.identity.with(|session| {
        let tensor = TensorRef::from_array_view(([count, 16], rows.x.as_flattened())).unwrap();
        let outputs = session.run(ort::inputs!["x" => tensor]).unwrap();
        let (_, data) = outputs[0].try_extract_tensor::<f32>().unwrap();
        data.as_chunks::<16>().0.to_vec()
    });
    json(&Same { y })
}

/// Decodes, resizes and normalizes a photo: 3 × 224 × 224.
fn pixels(photo: &[u8]) -> Vec<f32> {
    let photo = image::load_from_memory(photo).unwrap().into_rgb8();
    let (width, height) = photo.dimensions();
    let source = Image::from_vec_u8(width, height, photo.into_raw(), PixelType::U8x3).unwrap();
    let mut small = Image::new(SIDE as u32, SIDE as u32, PixelType::U8x3);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize(&source, &mut small, &options).unwrap();
    let mut tensor = vec![0.0; 3 * SIDE * SIDE];
    for (index, pixel) in small.buffer().as_chunks::<3>().0.iter().enumerate() {
        for channel in 0..3 {
            let value = f32::from(pixel[channel]) / 255.0;
            tensor[channel * SIDE * SIDE + index] = (value - MEAN[channel]) / DEVIATION[channel];
        }
    }
    tensor
}

#[derive(Serialize)]
struct Class {
    class: usize,
    score: f32,
}

fn classes(logits: &[f32]) -> Vec<Class> {
    let greatest = logits.iter().copied().fold(f32::MIN, f32::max);
    let exponentials: Vec<_> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
    let sum: f32 = exponentials.iter().sum();
    let mut classes: Vec<_> =
        exponentials.iter().enumerate().map(|(class, value)| Class { class, score: value / sum }).collect();
    classes.sort_by(|one, other| other.score.total_cmp(&one.score));
    classes.truncate(5);
    classes
}

async fn photo(State(models): Shared, photo: Bytes) -> Json {
    let work = move || {
        let pixels = pixels(&photo);
        models.resnet.with(|session| {
            let tensor = TensorRef::from_array_view(([1, 3, SIDE, SIDE], pixels.as_slice())).unwrap();
            let outputs = session.run(ort::inputs!["data" => tensor]).unwrap();
            classes(outputs[0].try_extract_tensor::<f32>().unwrap().1)
        })
    };
    json(&tokio::task::spawn_blocking(work).await.unwrap())
}

async fn preprocess(photo: Bytes) -> Vec<u8> {
    let work = move || bytemuck::cast_slice(&pixels(&photo)).to_vec();
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Serialize)]
struct Embedding {
    embedding: Vec<f32>,
}

async fn text(State(models): Shared, body: Bytes) -> Json {
    let text: Text = serde_json::from_slice(&body).unwrap();
    let work = move || {
        let encoding = models.tokenizer.encode(text.text, true).unwrap();
        let wide = |ids: &[u32]| ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>();
        let (ids, mask, types) =
            (wide(encoding.get_ids()), wide(encoding.get_attention_mask()), wide(encoding.get_type_ids()));
        let length = ids.len();
        models.minilm.with(|session| {
            let tensor = |data| TensorRef::from_array_view(([1, length], data)).unwrap();
            let inputs = ort::inputs![
                "input_ids" => tensor(ids.as_slice()),
                "attention_mask" => tensor(mask.as_slice()),
                "token_type_ids" => tensor(types.as_slice()),
            ];
            let outputs = session.run(inputs).unwrap();
            let (shape, hidden) = outputs[0].try_extract_tensor::<f32>().unwrap();
            let width = shape[2] as usize;
            let mut mean = vec![0.0; width];
            for row in hidden.chunks_exact(width) {
                mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += value / length as f32);
            }
            let norm = mean.iter().map(|value| value * value).sum::<f32>().sqrt();
            for value in &mut mean {
                *value /= norm;
            }
            mean
        })
    };
    json(&Embedding { embedding: tokio::task::spawn_blocking(work).await.unwrap() })
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [port, folder, sessions @ ..] = arguments.as_slice() else { return };
    let sessions = sessions.first().map_or(2, |sessions| sessions.parse().unwrap());
    let folder = Path::new(folder);
    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    tokenizer.with_truncation(Some(TruncationParams { max_length: 128, ..TruncationParams::default() })).unwrap();
    let library = std::env::var("ORT_DYLIB_PATH").unwrap();
    let environment = ort::init_from(library).unwrap().build().unwrap();
    let open = |model| Pool::open(&environment, &folder.join(model), sessions);
    let models = Arc::new(Models {
        identity: open("identity.onnx"),
        resnet: open("resnet18.onnx"),
        minilm: open("minilm6.onnx"),
        tokenizer,
    });
    let router = Router::new()
        .route("/health", get(async || "ok"))
        .route("/e1", post(identity))
        .route("/e2", post(photo))
        .route("/e3", post(text))
        .route("/pre", post(preprocess))
        .with_state(models);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().max_blocking_threads(sessions).enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        axum::serve(listener, router).await.unwrap();
    });
}
